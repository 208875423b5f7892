"""The one kind of error that the command line shows as a sentence."""


class UserError(Exception):
    """Something that the user can mend: the message is one sentence that says what, where, and what to do."""


class Stopped(BaseException):
    """A signal asked to stop, and everything was saved: no error, so nothing that handles errors gets it."""

    def __init__(self, sentence: str, *, code: int) -> None:
        super().__init__(sentence)
        self.code = code  # that the process should end with
