//! A matrix of counts, by true and predicted class, with cells colored by their share of the row.

use super::Cell;
use crate::escape::Escaped;

/// Classes up to which a cell shows its share, too.
const MOST_SHARES: usize = 12;

/// Counts of nodes by true class (rows) and predicted class (columns).
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Name, from which the id derives.
    pub name: String,
    /// Caption above the matrix.
    pub caption: String,
    /// Counts, with a cell to show for each.
    pub rows: Vec<Vec<(u64, Cell)>>,
}

impl Matrix {
    pub(super) fn html(&self, id: &str) -> String {
        let n_classes = self.rows.len();
        let mut html =
            format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", Escaped(&self.caption));
        html += &format!("<table id=\"{id}\" class=\"matrix\"><caption>{}</caption>", Escaped(&self.caption));
        html += "<thead><tr><th scope=\"col\">true \\ predicted</th>";
        html += &(0..n_classes).map(|class| format!("<th scope=\"col\">{class}</th>")).collect::<String>();
        html += "<th scope=\"col\">nodes</th><th scope=\"col\">recall (%)</th></tr></thead>\n<tbody>\n";
        for (own, row) in self.rows.iter().enumerate() {
            let n_nodes = row.iter().fold(0u64, |sum, (n, _)| sum.saturating_add(*n));
            html += &format!("<tr><th scope=\"row\">{own}</th>");
            for (class, (n, cell)) in row.iter().enumerate() {
                let share = share_of(*n, n_nodes);
                let tip = format!("{} of class {own} predicted as {class}", percent(share));
                let cell = cell.clone().with_tip(tip);
                let kind = if class == own { " class=\"right\"" } else { "" };
                let shown =
                    if n_classes <= MOST_SHARES { format!("<small>{}</small>", percent(share)) } else { String::new() };
                let style = format!(" style=\"--share:{share:.3}\"");
                html += &format!("<td{kind}{style}{}>{}{shown}</td>", cell.attributes(), cell.html());
            }
            let n_right = row.get(own).map_or(0, |(n, _)| *n);
            let right =
                if n_nodes == 0 { "—".to_owned() } else { format!("{:.1}", 100.0 * share_of(n_right, n_nodes)) };
            html += &format!("<td>{}</td><td>{right}</td></tr>\n", crate::grouped(n_nodes));
        }
        html + "</tbody></table></div>\n"
    }
}

fn share_of(n: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { n as f64 / all as f64 }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(counts: &[&[u64]]) -> String {
        let cell = |n: &u64| (*n, Cell::new(n.to_string()).with_value(n));
        let rows = counts.iter().map(|row| row.iter().map(cell).collect()).collect();
        Matrix { name: "test".to_owned(), caption: "Test <nodes>".to_owned(), rows }.html("test")
    }

    #[test]
    fn cells_have_counts_and_shares_of_their_row() {
        let html = matrix(&[&[3, 1], &[0, 0]]);
        assert!(html.contains("<caption>Test &lt;nodes&gt;</caption>"), "{html}");
        let right = "<td class=\"right\" style=\"--share:0.750\" data-value=\"3\" title=\"75% of class 0 predicted as 0\">3<small>75%</small></td>";
        let wrong = "<td style=\"--share:0.250\" data-value=\"1\" title=\"25% of class 0 predicted as 1\">1<small>25%</small></td>";
        assert!(html.contains(&format!("{right}{wrong}<td>4</td><td>75.0</td></tr>")), "{html}");
        assert!(html.contains("<td>0</td><td>—</td></tr>"), "a class without nodes: {html}");
    }

    #[test]
    fn many_classes_show_counts_alone() {
        let row = [7; 13];
        let html = matrix(&vec![&row[..]; 13]);
        assert!(!html.contains("<small>") && html.contains("8% of class 12 predicted as 3"), "{html}");
    }
}
