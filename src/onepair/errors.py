"""The one kind of error that the command line shows as a sentence."""


class UserError(Exception):
    """Something that the user can mend: the message is one sentence that says what, where, and what to do."""
