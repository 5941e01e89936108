package metrics

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/sluice-proxy/sluice/service"
)

// query says which Services are asked for.
type query struct {
	// namespace and name select by equality; empty ones select all.
	namespace, name string
	// top, unless 0, asks for that many, those with the longest time from
	// receipt to kernel first. The others come in the order of their keys.
	top int
	// limit bounds the answer; 0 does not.
	limit int
	json  bool
}

// limitDefault bounds an answer that nobody has bounded. A thousand Services make
// about a megabyte of text.
const limitDefault = 1000

var queryParameters = []string{"format", "limit", "name", "namespace", "top"}

// parseQuery reads the parameters of /metrics/services.
func parseQuery(values url.Values) (q query, err error) {
	for name, all := range values {
		if !slices.Contains(queryParameters, name) {
			return q, fmt.Errorf("parameter %q: want one of %q", name, queryParameters)
		}
		if len(all) != 1 {
			return q, fmt.Errorf("parameter %q: given %d times; once is enough", name, len(all))
		}
	}
	q.namespace, q.name = values.Get("namespace"), values.Get("name")
	if q.top, err = number(values, "top", 0); err != nil {
		return q, err
	}
	if q.limit, err = number(values, "limit", limitDefault); err != nil {
		return q, err
	}
	if q.top > 0 && !values.Has("limit") {
		q.limit = 0 // top bounds the answer already
	}
	switch format := values.Get("format"); format {
	case "", "text":
	case "json":
		q.json = true
	default:
		return q, fmt.Errorf("parameter \"format\": %q: want json or text", format)
	}
	return q, nil
}

func number(values url.Values, name string, otherwise int) (int, error) {
	text := values.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("parameter %q: %q: want a number, not negative", name, text)
	}
	return n, nil
}

// wants tells whether a Service is asked for. The node's own actor is no Service.
func (q *query) wants(key service.Key) bool {
	return key != service.Node &&
		(q.namespace == "" || key.Namespace == q.namespace) && (q.name == "" || key.Name == q.name)
}

// answer puts the lines into the order that is asked for, and tells how many do not
// fit.
func (q *query) answer(lines []line) (answer []line, omitted int) {
	most := len(lines)
	if q.top > 0 {
		slices.SortFunc(lines, func(a, b line) int {
			return cmp.Or(cmp.Compare(b.received.longest, a.received.longest), a.key.Compare(b.key))
		})
		most = min(most, q.top)
	} else {
		slices.SortFunc(lines, func(a, b line) int { return a.key.Compare(b.key) })
	}
	if q.limit > 0 {
		most = min(most, q.limit)
	}
	return lines[:most], len(lines) - most
}
