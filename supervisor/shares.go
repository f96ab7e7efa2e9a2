package supervisor

import "fmt"

// share is a part of what an agent has room for, in quarters.
type share int

// The shares: all is the owner's, if need be. All others together have less, and one of them less again, so that the
// owner finds room whatever they do, and they find some beside each other.
const (
	ofOne share = iota + 2
	ofLimited
	ofAll
)

// counts reports whether what is there on behalf of of is in the share of limited.
func (s share) counts(of, limited string) bool {
	return s == ofAll || s == ofLimited && of != "" || s == ofOne && of == limited
}

func (s share) String() string {
	return map[share]string{ofOne: "on behalf of this key or agent", ofLimited: "on behalf of keys for less and agents", ofAll: "for the agent"}[s]
}

// room says why there is no room for add more of what an agent has at most limit of; nil if there is. limited is that
// of [PromptOptions]. count adds up what is there of those that counts; what names it. The error is ErrQueueFull.
func room(limited string, add, limit int, what string, count func(counts func(of string) bool) int) error {
	for s := ofAll; s >= ofOne && (s == ofAll || limited != ""); s-- {
		most := limit - limit/4*int(ofAll-s) // all of what cannot be divided
		if has := count(func(of string) bool { return s.counts(of, limited) }); has+add > most {
			return fmt.Errorf("%w: %d %s %s, and more than %d may not", ErrQueueFull, has, what, s, most)
		}
	}
	return nil
}
