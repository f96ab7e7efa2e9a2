// Package telemetry sends the spans of a server to an OpenTelemetry collector (SPEC
// §6.6), as the environment asks for it (OTEL_…).
//
//	exporter, err := telemetry.New(ctx, os.Getenv, version, log)
//	defer exporter.Close()
//	options.Trace = exporter.Start()
//
// Spans wait in a bounded queue and are sent by a goroutine of the SDK's; where the
// collector is slow or gone they are lost, and nobody waits for it but Close, for 2 s.
// It is safe for concurrent use. No other package of ours imports OpenTelemetry.
package telemetry
