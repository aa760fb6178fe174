//! CSS of pages and plots: light, dark and print.

/// Variables for colors and fonts.
pub(crate) const COLORS: &str = include_str!("style/colors.css");
/// Classes of plots.
pub(crate) const PLOTS: &str = include_str!("style/plot.css");
/// The rest of a page.
pub(crate) const PAGE: &str = include_str!("style/page.css");

/// Number of colors; further series repeat them.
pub(crate) const N_COLORS: usize = 8;

/// The class that colors a series.
pub(crate) fn color(series: usize) -> String {
    format!("c{}", series % N_COLORS)
}

/// A plot with embedded style, to be saved as a file.
pub fn standalone(svg: &str) -> String {
    let Some(end) = svg.find('>').filter(|_| svg.starts_with("<svg")) else { return svg.to_owned() };
    let (head, body) = svg.split_at(end + 1);
    let space = if head.contains("xmlns=") { "" } else { " xmlns=\"http://www.w3.org/2000/svg\"" };
    let head = head.replacen("<svg", &format!("<svg{space}"), 1);
    format!("{head}<style>{COLORS}{PLOTS}</style><rect class=\"paper\" width=\"100%\" height=\"100%\"/>{body}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_alone_brings_its_style() {
        let alone = standalone("<svg class=\"plot\" viewBox=\"0 0 1 1\"><path/></svg>");
        assert!(
            alone.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 1 1\"><style>")
        );
        assert!(alone.ends_with("<path/></svg>\n") && alone.contains("prefers-color-scheme:dark"));
        assert!(alone.matches("xmlns").count() == 1);
    }

    #[test]
    fn every_color_is_there_in_light_dark_and_print() {
        for series in 0..N_COLORS {
            assert_eq!(COLORS.matches(&format!("--c{series}:#")).count(), 3);
            assert!(PLOTS.contains(&format!(".{}{{--c:", color(series))));
        }
        assert_eq!(color(N_COLORS), "c0");
    }
}
