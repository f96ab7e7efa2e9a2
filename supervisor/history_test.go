package supervisor_test

import (
	"fmt"
	"testing"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// Registrations are remembered, the ones that ended first forgotten, and that is known.
func TestHistory(t *testing.T) {
	run(t, always(supervisortest.Play{}), func(h *house) {
		begin, _ := h.sup.RegisteredUpTo()
		h.start("stays")
		for i := range supervisor.MaxRegistrations + 1 {
			h.start(fmt.Sprint("a", i))
			if err := h.sup.Remove(h.Context(), fmt.Sprint("a", i)); err != nil {
				t.Fatal(err)
			}
		}
		lives, _ := h.sup.Registrations(begin)
		if len(lives) != supervisor.MaxRegistrations+1 || lives[0].ID != "stays" || lives[0].Agent == nil || lives[1].ID != "a1" {
			t.Errorf("%d lives are remembered, first %+v", len(lives), lives[:2])
		}
		if one := lives[1]; one.Agent != nil || one.Since != 0 || one.Last == 0 || one.Gone {
			t.Errorf("one that is over is %+v", one)
		}
		if _, forgotten := h.sup.RegisteredUpTo(); forgotten <= begin || forgotten >= lives[1].Number {
			t.Errorf("forgotten are those up to %d, the first that is not is %d", forgotten, lives[1].Number)
		}
		if again, _ := h.sup.Registrations(lives[1].Number); len(again) != len(lives)-2 {
			t.Errorf("above the second of %d are %d", len(lives), len(again))
		}
	})
}
