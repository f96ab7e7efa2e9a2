package acp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// A question has as many options as a person reads, however many the program names, and those that the program
// remembers come after those for this once.
func TestOptions(t *testing.T) {
	list := []string{
		`{"optionId":"never","name":"Never","kind":"reject_always"}`, `{"optionId":"no","name":"No","kind":"reject_once"}`,
		`{"optionId":"` + strings.Repeat("x", maxOption+1) + `","name":"long","kind":"allow_once"}`, `{"optionId":"odd","name":"Odd","kind":"maybe"}`,
		`{"optionId":"yes","name":"` + strings.Repeat("y", 2*maxOption) + `","kind":"allow_once"}`,
	}
	for i := range 5000 {
		list = append(list, fmt.Sprintf(`{"optionId":"%d","name":"more","kind":"allow_once"}`, i))
	}
	got := options(gjson.Parse(`{"options":[` + strings.Join(list, ",") + `]}`))
	if len(got) != maxOptions-2 {
		t.Fatalf("%d options", len(got))
	}
	if got[0].ID != "no" || got[1].ID != "yes" || len(got[1].Name) > maxOption || got[len(got)-1].ID != "never" {
		t.Errorf("got %+v, %d bytes of a name, and %+v at the end", got[0], len(got[1].Name), got[len(got)-1])
	}
}
