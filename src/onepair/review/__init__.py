"""Review: a local page on which people confirm what `onepair find` suggests, and the labels that come of it."""
