package cli

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// minColumn is how narrow a column may become for a terminal's width.
const minColumn = 6

// table writes rows to stdout, in columns as wide as a terminal shows their cells.
func (p *printer) table(rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = line(row[i])
		}
	}
	return p.columns(rows, widths(rows))
}

// Listing writes rows to stdout, in columns below their names, which are the first row. To a terminal no line is
// longer than that is wide, as far as that can be: cells are cut, but for those of the first column, which are
// typed again. Of a path the end is shown.
func (p *printer) Listing(rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = line(row[i])
		}
	}
	wide := widths(rows)
	fit(wide, p.out.columns())
	for _, row := range rows[1:] {
		for i, cell := range row {
			switch more := ansi.StringWidth(cell) - wide[i]; {
			case more <= 0:
			case rows[0][i] == "CWD":
				row[i] = ansi.TruncateLeft(cell, more+1, "…")
			default:
				row[i] = ansi.Truncate(cell, wide[i], "…")
			}
		}
	}
	if p.out.styles {
		p.out.styled(bold, aligned(rows[0], wide))
		rows = rows[1:]
	}
	return p.columns(rows, wide)
}

// columns writes rows in columns of these widths.
func (p *printer) columns(rows [][]string, wide []int) error {
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(aligned(row, wide) + "\n")
	}
	_, err := p.out.Write([]byte(b.String()))
	return err
}

// between is what stands between two columns.
const between = "  "

// aligned is a row as a line.
func aligned(row []string, wide []int) string {
	var b strings.Builder
	for i, cell := range row {
		b.WriteString(cell + strings.Repeat(" ", max(0, wide[i]-ansi.StringWidth(cell))) + between)
	}
	return strings.TrimRight(b.String(), " ")
}

// widths are those of the columns of rows, in columns of a terminal.
func widths(rows [][]string) (wide []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], ansi.StringWidth(cell))
		}
	}
	return wide
}

// fit makes the widest columns narrower, but for the first one, until a line of all has at most so many
// columns of a terminal; 0 is no bound.
func fit(wide []int, most int) {
	if most == 0 || len(wide) < 2 {
		return
	}
	total := len(between) * (len(wide) - 1)
	for _, n := range wide {
		total += n
	}
	for ; total > most; total-- {
		widest := 1 + slices.Index(wide[1:], slices.Max(wide[1:]))
		if wide[widest] <= minColumn {
			return
		}
		wide[widest]--
	}
}

// columns is how wide the terminal is that the screen is of, or what was said to be; 0 for neither.
func (s *screen) columns() int {
	if s.terminal == nil {
		return s.wide
	}
	columns, _, err := term.GetSize(s.terminal.Fd())
	if err != nil {
		return 0
	}
	return columns
}
