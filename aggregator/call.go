package aggregator

import "github.com/sluice-proxy/sluice/service"

// call is a control message, keyed so that repeating oneself costs nothing.
type call struct {
	verb callVerb
	key  service.Key
}

type callVerb uint8

const (
	callPrime callVerb = iota
	callExcuse
	callAudit
	callPace
)
