package permission

import (
	"slices"

	"nexus.internal/protocol"
)

// Permit is what one call was allowed to run by. The zero value permits nothing.
type Permit struct {
	Policy Policy
	// ReadOnly and Covered say why nobody was asked: see [Policy.AllowedAsReadOnly]
	// and [Policy.Covers].
	ReadOnly, Covered bool
}

// Permit is the permit of a call that the policy allows by itself.
func (p Policy) Permit(c Call) Permit {
	return Permit{Policy: p, ReadOnly: p.AllowedAsReadOnly(c), Covered: p.Covers(c)}
}

// PermitOnce is the permit of a call that was allowed when the parent was asked: the
// policy with what was allowed for this call alone.
func (p Policy) PermitOnce(c Call) Permit {
	p.Allowances = slices.Clone(p.Allowances)
	for _, path := range c.Paths {
		p.Allowances = append(p.Allowances, protocol.Allowance{Tool: c.Tool, Action: c.Action, Dir: path, Programs: c.Programs})
	}
	return Permit{Policy: p}
}
