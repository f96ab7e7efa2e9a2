package foreign

import "github.com/tidwall/gjson"

// maxCost bounds what a program says that a turn, or a session, cost, in US dollars: sums and differences of such costs can be written.
const maxCost = 1e9

// Cost is a cost that a program tells; false for what is none: no number, below 0, or above a thousand million dollars.
func Cost(told gjson.Result) (dollars float64, ok bool) {
	ok = told.Type == gjson.Number && told.Num >= 0 && told.Num <= maxCost
	if !ok {
		return 0, false
	}
	return told.Num, true
}
