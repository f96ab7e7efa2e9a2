package probe

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// Card is what a probe found out.
type Card struct {
	Command  []string `json:"command"`
	Name     string   `json:"name"`    // that the program calls itself; "" if it does not say
	Version  string   `json:"version"` // "" if it does not say
	Protocol string   `json:"protocol"`
	// Dialect is how it spoke to the played model; "" if it asked none.
	Dialect  string `json:"dialect"`
	ProbedAt string `json:"probed_at"` // a date, UTC

	StartMS     int64 `json:"start_ms"`      // until it takes prompts
	FirstTextMS int64 `json:"first_text_ms"` // of its first turn
	MemoryBytes int64 `json:"memory_bytes"`  // of its processes, what no file backs
	// Remembers says whether a turn knows of the one before.
	Remembers   bool  `json:"remembers"`
	LargePrompt bool  `json:"large_prompt"` // one of 300,000 bytes is taken
	CancelMS    int64 `json:"cancel_ms"`    // from the cancel to the turn's end; 0 if it was not cancelled
	// WireBytesPerByte is what the program writes for a byte of text; 0 if that is not known.
	WireBytesPerByte float64 `json:"wire_bytes_per_byte"`

	// After a kill in the middle of a turn.
	KeepsPartialText    bool             `json:"keeps_partial_text"` // nexus does, if the program had told it
	Resumed             protocol.Resumed `json:"resumed" enum:"new,program,context"`
	ResumeReason        string           `json:"resume_reason,omitempty"`
	RemembersAfterCrash bool             `json:"remembers_after_crash"`
	Remains             int              `json:"remains"` // processes that outlived their nexus-child
	EndMS               int64            `json:"end_ms"`  // from the end of stdin to that of the process

	Commands []string `json:"commands"`
	// Problems are what could not be found out, or went wrong.
	Problems []string `json:"problems,omitempty"`
}

// Kind is what a configuration says to have agents of this kind.
func (c *Card) Kind(name string) (string, error) {
	kind := map[string]any{"kinds": map[string]any{name: map[string]any{"protocol": c.Protocol, "command": c.Command}}}
	text, err := json.Marshal(kind, jsontext.WithIndent("  "), json.Deterministic(true))
	return string(text), err
}

// rows are the card in words.
func (c *Card) rows() [][2]string {
	yes := func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	}
	ms := func(n int64) string { return fmt.Sprintf("%d ms", n) }
	cancel, bytes, crashed, remembers, remains := "", "", "", "", "" // not found out without a model to play
	if c.Dialect != "" {
		cancel = "the turn goes on"
		crashed, remembers, remains = yes(c.KeepsPartialText), yes(c.RemembersAfterCrash), fmt.Sprint(c.Remains)
	}
	if c.WireBytesPerByte > 0 {
		bytes = fmt.Sprintf("%.1f", c.WireBytesPerByte)
	}
	if c.CancelMS > 0 {
		cancel = ms(c.CancelMS)
	}
	memory := ""
	if c.MemoryBytes > 0 {
		memory = fmt.Sprintf("%.1f MiB", float64(c.MemoryBytes)/(1<<20))
	}
	resumed := map[protocol.Resumed]string{
		protocol.ResumedByProgram: "by the program itself", protocol.ResumedByContext: "as text that nexus kept", protocol.ResumedNew: "no: each prompt stands alone",
	}[c.Resumed]
	return [][2]string{
		{"program", strings.Join(c.Command, " ")},
		{"is", strings.TrimSpace(c.Name + " " + c.Version)},
		{"protocol", c.Protocol},
		{"its model's API", c.Dialect},
		{"starts in", ms(c.StartMS)},
		{"first text after", ms(c.FirstTextMS)},
		{"memory", memory},
		{"remembers", yes(c.Remembers)},
		{"prompt of 300 kB", yes(c.LargePrompt)},
		{"cancel takes", cancel},
		{"bytes for one of text", bytes},
		{"text of a crashed turn", crashed},
		{"goes on after a crash", resumed},
		{"and remembers", remembers},
		{"processes left", remains},
		{"ends with its stdin in", ms(c.EndMS)},
	}
}

// Lines are the card for people, with the configuration for such agents.
func (c *Card) Lines() (lines []string, err error) {
	for _, row := range c.rows() {
		if row[1] != "" {
			lines = append(lines, fmt.Sprintf("%-24s%s", row[0], row[1]))
		}
	}
	for _, problem := range c.Problems {
		lines = append(lines, fmt.Sprintf("%-24s%s", "problem", problem))
	}
	kind, err := c.Kind("mine")
	lines = append(lines, "", "config.json, for nexus-rpc create NAME --kind mine:")
	return append(lines, strings.Split(kind, "\n")...), err
}

// SVG writes the card as a picture. What a program says of itself may be anything: in XML no controls stand, nor the two that are no characters.
func (c *Card) SVG(w io.Writer) error {
	const line, left, value = 22, 20, 230
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\ufffe", "\ufffd", "\uffff", "\ufffd")
	var b strings.Builder
	y := 34
	for _, row := range c.rows() {
		if row[1] == "" {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#667">%s</text><text x="%d" y="%d" fill="#112">%s</text>`+"\n", left, y, escape.Replace(row[0]), value, y, escape.Replace(cli.Harmless(row[1], true)))
		y += line
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="640" height="%d" font-family="sans-serif" font-size="14">`+"\n"+
		`<rect width="100%%" height="100%%" rx="10" fill="#f7f8fb" stroke="#ccd"/>`+"\n%s</svg>\n", y, b.String())
	return err
}
