package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The picture, in pixels.
const (
	chartWidth, chartHeight = 460, 300
	chartColumns            = 2
	plotLeft, plotTop       = 72, 34
	plotWidth, plotHeight   = 340, 196
)

var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd"}

// draw writes curves as one SVG picture: a chart for each title and unit of x, with a
// logarithmic scale on both axes, and floors in dashes.
func draw(w io.Writer, curves []*curve) error {
	var charts [][]*curve
	at := map[string]int{}
	for _, c := range curves {
		if len(c.points) == 0 {
			continue
		}
		title := c.chart + ", by " + c.of
		if _, known := at[title]; !known {
			at[title] = len(charts)
			charts = append(charts, nil)
		}
		charts[at[title]] = append(charts[at[title]], c)
	}
	var p picture
	height := (len(charts) + chartColumns - 1) / chartColumns * chartHeight
	p.addf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`, chartColumns*chartWidth, height)
	p.addf(`<rect width="100%%" height="100%%" fill="white"/>`)
	for i, c := range charts {
		p.addf(`<g transform="translate(%d %d)">`, i%chartColumns*chartWidth, i/chartColumns*chartHeight)
		p.chart(c)
		p.addf(`</g>`)
	}
	p.addf(`</svg>`)
	_, err := io.WriteString(w, p.String())
	return err
}

// picture is an SVG that is being written.
type picture struct{ strings.Builder }

func (p *picture) addf(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text writes one piece of text. attributes may be "".
func (p *picture) text(x, y float64, attributes, text string) {
	p.addf(`<text x="%.1f" y="%.1f" %s>`, x, y, attributes)
	_ = xml.EscapeText(p, []byte(text)) // a Builder takes all
	p.addf(`</text>`)
}

// scale is a logarithmic axis between two powers of ten.
type scale struct{ low, high int }

func (s *scale) include(v float64) {
	if v > 0 {
		s.low, s.high = min(s.low, int(math.Floor(math.Log10(v)))), max(s.high, int(math.Ceil(math.Log10(v))))
	}
}

// at is where a value is, from 0 to 1.
func (s *scale) at(v float64) float64 {
	return (math.Log10(v) - float64(s.low)) / float64(max(s.high-s.low, 1))
}

func (p *picture) chart(curves []*curve) {
	x, y := scale{math.MaxInt, math.MinInt}, scale{math.MaxInt, math.MinInt}
	for _, c := range curves {
		for _, at := range c.points {
			x.include(at.x)
			y.include(at.y)
			y.include(at.floor)
		}
	}
	p.text(plotLeft, 20, `font-size="13" font-weight="bold"`, curves[0].chart)
	for e := x.low; e <= x.high; e++ {
		v := math.Pow10(e)
		left := plotLeft + plotWidth*x.at(v)
		p.addf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`, left, plotTop, left, plotTop+plotHeight)
		p.text(left, plotTop+plotHeight+14, `text-anchor="middle"`, fmt.Sprintf("%.0f", v))
	}
	for e := y.low; e <= y.high; e++ {
		v := math.Pow10(e)
		top := plotTop + plotHeight*(1-y.at(v))
		p.addf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`, plotLeft, top, plotLeft+plotWidth, top)
		p.text(plotLeft-5, top+4, `text-anchor="end"`, tick(curves[0].unit, v))
	}
	p.text(plotLeft+plotWidth, plotTop+plotHeight+28, `text-anchor="end"`, curves[0].of)
	legend := 0
	line := func(c *curve, name, colour, style string, value func(point) float64) {
		var path strings.Builder
		for _, at := range c.points {
			if v := value(at); v > 0 {
				left, top := plotLeft+plotWidth*x.at(at.x), plotTop+plotHeight*(1-y.at(v))
				fmt.Fprintf(&path, "%.1f,%.1f ", left, top)
				p.addf(`<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, left, top, colour)
			}
		}
		if path.Len() == 0 {
			return
		}
		p.addf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`, path.String(), colour, style)
		p.text(plotLeft+float64(legend%2)*170-60, plotTop+plotHeight+44+float64(legend/2)*13, fmt.Sprintf(`fill="%s"`, colour), name)
		legend++
	}
	for i, c := range curves {
		colour := colours[i%len(colours)]
		line(c, c.name, colour, "", func(at point) float64 { return at.y })
		line(c, "- - "+cmp.Or(c.floorIs, "floor"), colour, ` stroke-dasharray="4 3" opacity="0.7"`, func(at point) float64 { return at.floor })
	}
}

// tick is a value on an axis.
func tick(u unit, v float64) string {
	if u == size { // powers of ten of bytes
		return fmt.Sprintf("%g kB", v/1000)
	}
	return u.of(v)
}
