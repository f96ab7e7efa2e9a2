package top

import (
	"strings"
	"time"
)

// A curve has a cell for each cellTime of the last ones: five minutes.
const (
	cellTime = 5 * time.Second
	maxCells = 60
)

// curve is what a number was lately: the mean of each cell. The zero curve has nothing.
type curve struct {
	sums   [maxCells]float64
	counts [maxCells]int
	last   int // the cell of the last value, counted from the beginning
}

// add adds a value at a time since the beginning. A value below 0 is not known.
func (c *curve) add(at time.Duration, value float64) {
	cell := int(at / cellTime)
	for c.last < cell {
		c.last++
		c.sums[c.last%maxCells], c.counts[c.last%maxCells] = 0, 0
	}
	if value >= 0 {
		c.sums[cell%maxCells] += value
		c.counts[cell%maxCells]++
	}
}

// at is the mean of the cell that is so many before the last one; -1 if nothing is known of it.
func (c *curve) at(ago int) float64 {
	cell := c.last - ago
	if cell < 0 || ago >= maxCells || c.counts[cell%maxCells] == 0 {
		return -1
	}
	return c.sums[cell%maxCells] / float64(c.counts[cell%maxCells])
}

// most is the largest mean of the last cells.
func (c *curve) most(cells int) (most float64) {
	for ago := range cells {
		most = max(most, c.at(ago))
	}
	return most
}

var levels = []rune("▁▂▃▄▅▆▇█")

// draw draws the last cells, the latest one at the right; full is the height of the highest level.
func (c *curve) draw(cells int, full float64) string {
	var b strings.Builder
	for ago := cells - 1; ago >= 0; ago-- {
		switch value := c.at(ago); {
		case value < 0:
			b.WriteByte(' ')
		case full <= 0:
			b.WriteRune(levels[0])
		default:
			b.WriteRune(levels[min(len(levels)-1, int(value/full*float64(len(levels))))])
		}
	}
	return b.String()
}
