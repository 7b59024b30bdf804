//! Figures against bare floors, taken in one run.
