package scripted

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/scenario"
)

// ErrAsked is the error of a turn that was asked to fail.
var ErrAsked = errors.New("the offline model was asked to fail")

const (
	countPause = 50 * time.Millisecond
	maxCount   = 1_000_000
	quoteLimit = 60 // characters of a prompt that a reply quotes
)

// abilities is what the model says of itself when it is greeted or asked.
const abilities = "I am nexus's offline model: a small set of fixed rules, not a language model. " +
	"I remember what you tell me in this conversation (\"My name is Alice\", \"What is my name?\"), " +
	"I call tools (\"read FILE\", \"list DIR\", \"write FILE: TEXT\", \"find GLOB\", \"search WORD\", \"run CMD\", \"sleep N\"), " +
	"and I can \"echo TEXT\", \"count to N\", \"think about X\", \"write a long essay\" and \"fail\"."

// rules are tried in this order; the first that takes the prompt answers it.
// A rule gets the prompt without the space around it.
var rules = []func(w *answerWriter, r provider.Request, prompt string) bool{
	task, plan, echo, fail, count, flood, longText, think, summarize, callTool, recall, remember, greet,
}

// answer is the offline model.
func answer(w *answerWriter, r provider.Request) {
	last := len(r.Messages) - 1
	if last >= 0 && r.Messages[last].Role == protocol.RoleTool {
		report(w, r.Messages)
		return
	}
	prompt := ""
	if i := lastUser(r.Messages); i >= 0 {
		prompt = strings.TrimSpace(strings.ToValidUTF8(r.Messages[i].Content, "\uFFFD"))
	}
	for _, rule := range rules {
		if rule(w, r, prompt) {
			return
		}
	}
	w.sayf("I have no rule for %s: I am nexus's offline model, not a language model. "+
		"This conversation has %s so far. Say \"help\" for what I can do.",
		quote(prompt), counted(len(r.Messages), "message"))
}

// after returns what follows the word in prompt, if it begins with it. A colon
// may stand between them.
func after(prompt, word string) (rest string, ok bool) {
	if len(prompt) < len(word) || !strings.EqualFold(prompt[:len(word)], word) {
		return "", false
	}
	rest = prompt[len(word):]
	if rest != "" && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, ":") && !strings.HasPrefix(rest, "\n") {
		return "", false
	}
	return strings.TrimSpace(strings.TrimPrefix(rest, ":")), true
}

// normalize is the prompt in lower case without the punctuation at its end.
func normalize(prompt string) string {
	return strings.TrimRight(strings.ToLower(prompt), " .!?,;:")
}

func echo(w *answerWriter, _ provider.Request, prompt string) bool {
	text, ok := after(prompt, "echo")
	if ok {
		w.say(text, 0)
	}
	return ok
}

func fail(w *answerWriter, _ provider.Request, prompt string) bool {
	if normalize(prompt) != "fail" {
		return false
	}
	w.fail(ErrAsked)
	return true
}

func count(w *answerWriter, _ provider.Request, prompt string) bool {
	rest, ok := after(prompt, "count to")
	if !ok {
		return false
	}
	n, err := strconv.Atoi(strings.ReplaceAll(normalize(rest), ",", ""))
	if err != nil || n < 1 || n > maxCount {
		w.sayf("I count to a whole number from 1 to %d, not to %s.", maxCount, quote(rest))
		return true
	}
	for i := 1; i <= n; i++ {
		word := strconv.Itoa(i)
		if i < n {
			word += " "
		}
		w.say(word, 0)
		if i < n && !w.wait(countPause) {
			break
		}
	}
	return true
}

// flood answers as fast as it can, to measure what carries the answer.
func flood(w *answerWriter, _ provider.Request, prompt string) bool {
	rest, ok := after(prompt, "flood")
	if !ok {
		return false
	}
	n, err := strconv.Atoi(normalize(rest))
	if err != nil || n < 1 || n > scenario.MaxFlood {
		w.sayf("I flood with 1 to %d words, not with %s.", scenario.MaxFlood, quote(rest))
		return true
	}
	for range n {
		w.bytes += len("flood ")
		if !w.emit(provider.Text{Text: "flood "}) {
			break
		}
	}
	return true
}

func think(w *answerWriter, _ provider.Request, prompt string) bool {
	subject, ok := after(prompt, "think")
	if !ok {
		return false
	}
	w.think(fmt.Sprintf("The prompt asks me to think. I have rules and no thoughts, so I repeat it: %s.", quote(subject)), 0)
	w.sayf("I thought about it as well as fixed rules can: %s.", quote(subject))
	return true
}

func greet(w *answerWriter, _ provider.Request, prompt string) bool {
	words := strings.FieldsFunc(normalize(prompt), func(r rune) bool { return r == ' ' || r == ',' || r == '!' })
	if len(words) == 0 {
		w.say("You said nothing. "+abilities, 0)
		return true
	}
	switch words[0] {
	case "hello", "hi", "hey", "greetings":
		w.say("Hello! "+abilities, 0)
		return true
	}
	switch normalize(prompt) {
	case "help", "what can you do", "who are you", "what are you", "are you a language model":
		w.say(abilities, 0)
		return true
	}
	return false
}

// callTool asks for the tool that the prompt names, if the request offers it.
func callTool(w *answerWriter, r provider.Request, prompt string) bool {
	name, input, problem := wanted(prompt)
	switch {
	case problem != "":
		w.say(problem, 0)
	case name == "":
		return false
	case !offered(r, name):
		w.sayf("I have no tool %s here, so I cannot do that.", name)
	default:
		encoded, err := json.Marshal(input, json.Deterministic(true))
		if err != nil {
			w.fail(fmt.Errorf("call %s: %w", name, err))
			break
		}
		w.call(w.nextCall(r.Messages, 0), name, encoded)
	}
	return true
}

// wanted reads a request for a tool out of a prompt. The name is "" if there is
// none, and problem says what is wrong with one that cannot be carried out.
func wanted(prompt string) (name string, input map[string]any, problem string) {
	if rest, ok := after(prompt, "read"); ok && rest != "" {
		return "read_file", map[string]any{"path": fileName(rest)}, ""
	}
	if rest, ok := after(prompt, "list"); ok {
		switch normalize(rest) {
		case "", "files", "the files", "the directory":
			rest = "."
		}
		return "list_directory", map[string]any{"path": fileName(rest)}, ""
	}
	if rest, ok := after(prompt, "write"); ok {
		path, content, found := strings.Cut(rest, ":")
		if !found {
			return "", nil, "I write only files: say \"write FILE: TEXT\"."
		}
		return "write_file", map[string]any{"path": fileName(path), "content": strings.TrimPrefix(content, " ")}, ""
	}
	// Of several words, "find" and "search" are more likely plain language.
	if rest, ok := after(prompt, "find"); ok && len(strings.Fields(rest)) == 1 {
		return "glob", map[string]any{"pattern": rest}, ""
	}
	if rest, ok := after(prompt, "search"); ok && len(strings.Fields(rest)) == 1 {
		return "search_text", map[string]any{"pattern": rest, "literal": true}, ""
	}
	if rest, ok := after(prompt, "run"); ok && rest != "" {
		return "shell", map[string]any{"command": rest}, ""
	}
	if rest, ok := after(prompt, "sleep"); ok {
		number, _, _ := strings.Cut(strings.TrimSuffix(normalize(rest), "s"), " ")
		seconds, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return "", nil, fmt.Sprintf("I sleep for a number of seconds, not for %s.", quote(rest))
		}
		return "sleep", map[string]any{"seconds": seconds}, ""
	}
	return "", nil, ""
}

// fileName takes what people put around a file's name off it.
func fileName(text string) string {
	text = strings.TrimSpace(text)
	for _, word := range []string{"the file ", "file ", "the directory ", "directory "} {
		if rest, ok := strings.CutPrefix(text, word); ok {
			text = rest
			break
		}
	}
	return strings.Trim(strings.TrimSpace(text), "\"'`")
}

func offered(r provider.Request, name string) bool {
	for _, t := range r.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// nextCall makes the id of a call that is new in the conversation: the highest
// number used so far, and more.
func (w *answerWriter) nextCall(messages []protocol.Message, index int) string {
	return "call_" + strconv.Itoa(w.memory.read(messages).lastCall+1+index)
}

// report answers with what the tools gave back.
func report(w *answerWriter, messages []protocol.Message) {
	first := len(messages)
	for first > 0 && messages[first-1].Role == protocol.RoleTool {
		first--
	}
	for i, m := range messages[first:] {
		if i > 0 {
			w.say("\n\n", 0)
		}
		if m.IsError {
			w.sayf("That did not work. %s", m.Content)
		} else {
			w.sayf("%s gave:\n%s", m.ToolName, m.Content)
		}
	}
}

func quote(text string) string {
	if head := []rune(text); len(head) > quoteLimit {
		text = string(head[:quoteLimit]) + "…"
	}
	return `"` + text + `"`
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

const (
	longTextSentences = 200
	longTextPause     = 20 * time.Millisecond // between two words
)

// The long text is put together from these: subject, verb and object turn at
// different speeds, so that no two sentences near each other are the same.
var (
	subjects = []string{
		"A supervisor", "Each agent", "The parent process", "A quiet program", "One small part",
		"The conversation", "Every careful design",
	}
	verbs = []string{
		"watches over", "answers for", "survives", "writes down", "waits for", "lets go of",
		"starts again after", "keeps apart", "counts", "outlives", "makes room for",
	}
	objects = []string{
		"the work that was given to it", "a failure that nobody expected", "what others have begun",
		"the message that came last", "a neighbour that has stopped", "its own short history", "the promise it made at the start",
		"the pipe between two processes", "a turn that never seems to end", "the memory of what was said",
		"an answer that is still on its way", "the signal to come to rest", "all that it does not own",
	}
)

// longText streams long enough to be cancelled: about 50 seconds.
func longText(w *answerWriter, _ provider.Request, prompt string) bool {
	asked := normalize(prompt)
	if !strings.HasPrefix(asked, "write a long essay") && !strings.HasPrefix(asked, "write an essay") {
		return false
	}
	var text strings.Builder
	text.WriteString("An essay made of fixed words, by a model that is none. ")
	for i := range longTextSentences {
		fmt.Fprintf(&text, "%s %s %s (%d of %d).", subjects[i%len(subjects)], verbs[i%len(verbs)],
			objects[i%len(objects)], i+1, longTextSentences)
		if i+1 < longTextSentences {
			text.WriteByte(' ')
		}
	}
	w.say(text.String(), longTextPause)
	return true
}
