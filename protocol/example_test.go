package protocol_test

import (
	"fmt"

	"nexus.internal/protocol"
)

func ExampleDecodeCommand() {
	command, err := protocol.DecodeCommand([]byte(`{"type":"prompt","id":"1","message":"hello"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	switch c := command.(type) {
	case protocol.Prompt:
		fmt.Printf("prompt %s: %s\n", c.ID, c.Message)
	default:
		fmt.Println(c.Name())
	}

	_, err = protocol.DecodeCommand([]byte(`{"type":"set_model","id":"2"}`))
	fmt.Println(err)
	// Output:
	// prompt 1: hello
	// set_model: member "model" is missing
}

func ExampleAppendEvent() {
	line, err := protocol.AppendEvent(nil, protocol.MessageUpdate{Event: protocol.TextDelta{Delta: "Hi"}})
	fmt.Printf("%s %v\n", line, err)
	line, err = protocol.AppendEvent(nil, protocol.SuccessResponse(protocol.Abort{ID: "7"}, protocol.TurnDone{}))
	fmt.Printf("%s %v\n", line, err)
	// Output:
	// {"type":"message_update","event":{"type":"text_delta","delta":"Hi"}} <nil>
	// {"type":"response","id":"7","command":"abort","ok":true} <nil>
}

func ExampleFrame_Decode() {
	frame, err := protocol.NewFrame([]byte(`{"type":"agent_end","usage":{"input_tokens":12,"output_tokens":3}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	event, err := frame.Decode()
	fmt.Println(frame.Type, event.(protocol.AgentEnd).Usage.OutputTokens, err)
	// Output: agent_end 3 <nil>
}
