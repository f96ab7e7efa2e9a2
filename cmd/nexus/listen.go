package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/homelock"
	"nexus.internal/bridge/httpd"
	"nexus.internal/cmd/internal/cli"
)

// remoteOptions are the flags by which clients on other machines reach the server: all of them, or none.
type remoteOptions struct {
	listen    string // HOST:PORT; "" for none
	cert, key string // files; absolute once complete
}

func (o *remoteOptions) flags(set *pflag.FlagSet) {
	set.StringVar(&o.listen, "listen", "", "listen at `HOST:PORT`, too, for clients on other machines, by TLS: takes --tls-cert and --tls-key")
	set.StringVar(&o.cert, "tls-cert", "", "`FILE` with the certificate for --listen, and those between it and the authority that clients know, as PEM")
	set.StringVar(&o.key, "tls-key", "", "`FILE` with the private key of --tls-cert, as PEM, which only you may read")
}

// complete says what is wrong with the flags.
func (o *remoteOptions) complete() (err error) {
	for _, one := range []struct{ flag, value string }{{"listen HOST:PORT", o.listen}, {"tls-cert FILE", o.cert}, {"tls-key FILE", o.key}} {
		if one.value == "" && *o != (remoteOptions{}) {
			return cli.Usage("--listen, --tls-cert and --tls-key go together, as clients on other machines are served by TLS alone: say --%s", one.flag)
		}
	}
	if o.listen == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(o.listen); err != nil || host == "" || port == "" {
		return cli.Usage("--listen is HOST:PORT, as in 10.0.0.1:8765, or 0.0.0.0:8765 for all addresses of this machine, not %q", o.listen)
	}
	if o.cert, err = filepath.Abs(o.cert); err == nil {
		o.key, err = filepath.Abs(o.key)
	}
	return err
}

// private are the files that let whoever changes or reads them be the server for its clients, and where they lie in the directory
// of an authority, that: with its key, any name is proved.
func (o *remoteOptions) private() []string {
	if o.listen == "" {
		return nil
	}
	return append([]string{o.cert, o.key}, authorities(filepath.Dir(withoutLinks(o.cert)), filepath.Dir(withoutLinks(o.key)), filepath.Dir(o.cert), filepath.Dir(o.key))...)
}

// certificate reads the files; nil without the flags.
func (o *remoteOptions) certificate() (*httpd.Certificate, error) {
	if o.listen == "" {
		return nil, nil
	}
	c, err := httpd.ReadCertificate(o.cert, o.key)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return c, nil
}

// listeners are what a server listens at.
type listeners struct {
	local  net.Listener
	remote net.Listener // nil for none
}

func (l listeners) close() {
	l.local.Close()
	if l.remote != nil {
		l.remote.Close()
	}
}

// remoteURL is where clients on other machines reach the server; "" for nowhere.
func (l listeners) remoteURL() string {
	if l.remote == nil {
		return ""
	}
	return "https://" + l.remote.Addr().String()
}

// listen takes the ports, or says who has them.
func listen(ctx context.Context, o serveOptions, home string) (l listeners, err error) {
	if l.local, err = listenHere(ctx, o, home); err != nil || o.remote.listen == "" {
		return l, err
	}
	if _, err = o.remote.certificate(); err == nil {
		var config net.ListenConfig
		if l.remote, err = config.Listen(ctx, "tcp", o.remote.listen); err != nil {
			err = fmt.Errorf("--listen: %w", err)
		}
	}
	if err != nil {
		l.local.Close()
	}
	return l, err
}

// listenHere takes the port for clients on this machine.
func listenHere(ctx context.Context, o serveOptions, home string) (net.Listener, error) {
	listener, err := httpd.Listen(o.host, o.port)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	if own, err := homelock.Find(home); err == nil && own.Runs && own.Port == o.port { // also if it does not answer
		return nil, &cli.HomeLockedError{Home: home, PID: own.PID, Port: own.Port}
	}
	user := "another program uses"
	if cli.Detect(ctx, o.port) {
		user = "the nexus server of another home listens on"
	}
	return nil, fmt.Errorf("%s %s", user, cli.PortTaken(o.port))
}

// shownPath is a path as the server says it on stdout: as it is, or as a JSON string where a terminal would act on something in it.
func shownPath(path string) string {
	harmless := cli.Harmless(path, true)
	if harmless == path {
		return path
	}
	quoted, err := json.Marshal(path)
	if err != nil { // it is no UTF-8, and so no JSON
		return harmless
	}
	return cli.Harmless(string(quoted), true)
}
