package inspect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// TestExposureReference: the page lists each path as the table in code has it.
func TestExposureReference(t *testing.T) {
	var rows [][]string
	for _, e := range Exposures {
		path := e.Path
		if e.Kind != "" {
			path = strings.Replace(path, "{kind}", e.Kind, 1)
		}
		rows = append(rows, []string{"`" + path + "`", e.Shows, e.Reach.String()})
	}
	doctest.Generated(t, "../../docs/security.md", "exposures", doctest.Table([]string{"Path", "Shows", "Answered to"}, rows))
}

// TestEveryPathIsAnsweredAsTheTableSays asks each path of the API, with each kind of list, from another host: without
// checks of callers, and with them. Nothing that has addresses of clients is for the whole network.
func TestEveryPathIsAnsweredAsTheTableSays(t *testing.T) {
	ended := make(chan struct{}) // no stream lasts
	close(ended)
	for _, e := range Exposures {
		kinds := []string{e.Kind}
		if e.Path == PathTop && e.Kind == "" {
			kinds = TopKinds[1:]
		}
		if strings.Contains(e.Shows, "addresses of clients") && e.Reach == Network {
			t.Errorf("%s shows addresses of clients to the whole network", e.Path)
		}
		for _, kind := range kinds {
			path := strings.NewReplacer("{namespace}", "ns0", "{name}", "s00000", "{kind}", kind, "{endpoint}", "10.0.0.1:80").Replace(e.Path)
			for _, authorized := range []bool{false, true} {
				source := &stand{services: 1, hold: ended}
				answer := httptest.NewRecorder()
				Remote("v1", source, authorized).ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
				may := e.Reach == Network || e.Reach == Authorized && authorized
				if refused := answer.Code == http.StatusForbidden || answer.Code == http.StatusNotFound; refused == may {
					t.Errorf("%s, authorized %v: status %d, want an answer: %v", path, authorized, answer.Code, may)
				}
			}
		}
	}
	if _, known := reach("/"+Version+"/new", ""); known {
		t.Error("a path that is not in the table is known")
	}
}
