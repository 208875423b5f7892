"""Linear classifiers on fixed features: one solver for `onepair train`, `onepair find` and `OPMLClassifier`."""
