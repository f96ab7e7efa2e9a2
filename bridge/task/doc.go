// Package task says to a model what is wanted of it as a planner or as an
// executor, and reads its answer.
//
//	text := task.ExecutePrompt(params, id)
//	answer, err := task.ReadAnswer(reply, id) // *task.ShapeError: ask once more with
//	text = task.RepairPrompt(err)
//
// The same parameters always make the same prompt, so that a request_id can be
// used again. An answer is the JSON object with which a reply ends, fenced or
// not, or else the only one of the shape in it, on lines of its own; what stands
// around it is passed over.
//
// A [Runner] has agents do tasks. What reads and writes texts is pure; all is safe for concurrent use. The package
// believes nothing that it did not read: which files were changed, it asks the
// conversation of the agent, where its tools have recorded that. The contract is SPEC.md §6.7.
package task
