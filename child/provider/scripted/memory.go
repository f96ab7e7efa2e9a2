package scripted

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// fact is something a user said of something of theirs.
type fact struct {
	Thing string // lower case, single spaces: "name", "favourite colour"
	Verb  string // "is" or "are"
	Value string // as it was said
}

// memory reads what the model knows of a conversation from its messages. It remembers how
// far it got, so that a conversation which grew costs only what was added; of any other it
// begins anew. It keeps the last conversation it saw and is safe for concurrent use.
type memory struct {
	script *script // nil: there is no scenario

	mu    sync.Mutex        // guards all below
	start *protocol.Message // where the conversation lies
	seen  int               // messages in known
	known knowledge
}

// knowledge is what follows from messages.
type knowledge struct {
	facts    []fact   // in the order in which they were said
	lastCall int      // highest number of a call
	position position // in the scenario, if there is one
}

// read returns what the messages say, which nobody may change from then on. Only the
// latest conversation is remembered: two that take turns are each read anew.
func (k *memory) read(messages []protocol.Message) knowledge {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(messages) == 0 || k.start != &messages[0] || len(messages) < k.seen {
		k.known, k.seen, k.start = knowledge{}, 0, nil
	}
	for _, m := range messages[k.seen:] {
		k.add(m)
	}
	if k.seen = len(messages); k.seen > 0 {
		k.start = &messages[0]
	}
	return k.known
}

// add reads one message. The caller holds mu.
func (k *memory) add(m protocol.Message) {
	if k.script != nil {
		k.known.position = k.script.next(k.known.position, m)
	}
	// System messages count as well: a summary of older messages is one.
	if (k.script == nil || k.script.After == "offline") && (m.Role == protocol.RoleUser || m.Role == protocol.RoleSystem) {
		k.known.facts = append(k.known.facts, statedFacts(conversation.UserText(m))...)
	}
	for _, call := range m.ToolCalls {
		if n, err := strconv.Atoi(strings.TrimPrefix(call.ID, "call_")); err == nil {
			k.known.lastCall = max(k.known.lastCall, n)
		}
	}
}

// The two shapes are compiled when first needed: a child that talks to another
// model never needs them.
var (
	statement = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[^\pL])my ([\pL][\pL\pN' _-]{0,60}?) (is|are) (\S.*)$`)
	})
	question = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^(?:and |so |please )*` +
			`(?:(?:do you |can you )?(?:know|tell me|remember|remind me) )?(?:what|who|where|when|which|how)?(?:'s| is| are| was| were)? ?my ([\pL][\pL\pN' _-]{0,60}?)(?: is| are)?$`)
	})
	questionStart = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^(?:and |so |please )*(?:what|who|where|when|which|how|do you|can you|tell me|remind me)\b`)
	})
)

// recall answers a question for something that the user was to have told.
func recall(w *answerWriter, r provider.Request, prompt string) bool {
	for _, clause := range clauses(prompt) {
		if !questionStart().MatchString(clause) {
			continue
		}
		match := question().FindStringSubmatch(strings.Join(strings.Fields(clause), " "))
		if match == nil {
			continue
		}
		thing := normalizeThing(match[1])
		for _, f := range slices.Backward(w.memory.read(r.Messages).facts) {
			if f.Thing == thing {
				w.sayf("Your %s %s %s.", f.Thing, f.Verb, f.Value)
				return true
			}
		}
		w.sayf("You have not told me your %s in this conversation.", thing)
		return true
	}
	return false
}

// remember acknowledges what it was told. There is nothing to store: the
// conversation is the memory.
func remember(w *answerWriter, _ provider.Request, prompt string) bool {
	told := statedFacts(prompt)
	if len(told) == 0 {
		return false
	}
	var said []string
	for _, f := range told {
		if f.Thing == "name" {
			said = append(said, "Nice to meet you, "+f.Value+"!")
		} else {
			said = append(said, "I will remember that your "+f.Thing+" "+f.Verb+" "+f.Value+".")
		}
	}
	w.say(strings.Join(said, " "), 0)
	return true
}

// summarize tells what the user has told, so that a summary which replaces the
// conversation keeps what the model remembers.
func summarize(w *answerWriter, r provider.Request, prompt string) bool {
	switch word, _, _ := strings.Cut(normalize(prompt), " "); word {
	case "summarize", "summarise":
	default:
		return false
	}
	text := "A conversation of " + counted(len(r.Messages), "message") + "."
	for _, f := range latestFacts(w.memory.read(r.Messages).facts) {
		text += " The user said: my " + f.Thing + " " + f.Verb + " " + f.Value + "."
	}
	w.say(text, 0)
	return true
}

// latestFacts is what still holds of the facts that were told, the last one first.
func latestFacts(told []fact) []fact {
	var all []fact
	known := map[string]bool{}
	for _, f := range slices.Backward(told) {
		if !known[f.Thing] {
			known[f.Thing] = true
			all = append(all, f)
		}
	}
	return all
}

// statedFacts finds the facts in a text, in their order.
func statedFacts(text string) []fact {
	if !mayStateFact(text) {
		return nil
	}
	var told []fact
	for _, clause := range clauses(text) {
		if questionStart().MatchString(clause) {
			continue
		}
		if match := statement().FindStringSubmatch(clause); match != nil {
			told = append(told, fact{
				Thing: normalizeThing(match[1]),
				Verb:  strings.ToLower(match[2]),
				Value: strings.TrimSpace(match[3]),
			})
		}
	}
	return told
}

// mayStateFact reports whether the text has the word that every statement has. Most
// texts have not, and this is much cheaper than the shapes.
func mayStateFact(text string) bool {
	for {
		i := strings.IndexAny(text, "yY")
		if i < 0 {
			return false
		}
		if i > 0 && text[i-1]|0x20 == 'm' && i+1 < len(text) && text[i+1] == ' ' {
			return true
		}
		text = text[i+1:]
	}
}

// clauses splits a text where a sentence ends, and where "and my" begins
// another statement. The marks at their ends are taken off.
func clauses(text string) []string {
	var all []string
	add := func(clause string) {
		if clause = strings.Trim(clause, " \t\r.!?,;"); clause != "" {
			all = append(all, clause)
		}
	}
	start := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n' || c == ';':
			add(text[start:i])
			start = i + 1
		case (c == '.' || c == '!' || c == '?') && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\n'):
			add(text[start:i])
			start = i + 1
		case c == ' ' && len(text)-i > 8 && strings.EqualFold(text[i:i+8], " and my "):
			add(text[start:i])
			start = i + len(" and ")
		}
	}
	add(text[start:])
	return all
}

func normalizeThing(thing string) string {
	return strings.ToLower(strings.Join(strings.Fields(thing), " "))
}
