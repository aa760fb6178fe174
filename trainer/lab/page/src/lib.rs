//! Pages, plots and event files made of plain numbers.
