//! The suites, behind one executable so that they link once.
