package cli

import "strconv"

// portFlag is the value of --port.
type portFlag struct{ *target }

func (portFlag) Type() string   { return "int" }
func (portFlag) String() string { return "" } // --help says the default in words

func (f portFlag) Set(text string) error {
	port, err := strconv.Atoi(text)
	if err == nil {
		f.Port, f.portFrom, f.portErr, f.byURL = port, fromFlag, nil, false
	}
	return err
}

// CheckPort is a usage error for a port below lowest or above 65535: 0 is a free
// one for a server, and none to call.
func (t *target) CheckPort(lowest int) error {
	if t.portErr != nil {
		return t.portErr
	}
	if t.Port < lowest || t.Port > 65535 {
		return Usage("%s must be from %d to 65535, not %d", t.portFrom, lowest, t.Port)
	}
	return nil
}

// ConnectPort is --port for the port of the URL of --connect.
func (t *target) ConnectPort(text string) error {
	if err := (portFlag{t}).Set(text); err != nil || t.Port < 1 || t.Port > 65535 {
		return Usage("--connect: the port must be from 1 to 65535, not %s", text)
	}
	t.byURL = true
	return nil
}

// portName is what names the port, as people write it; "" for nothing.
func (t *target) portName() string {
	if t.byURL {
		return "the URL of --connect"
	}
	return t.portFrom
}
