package inspect

import (
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// History has the traffic of the last 15 minutes, of all Services together or of one, the oldest step first.
type History struct {
	APIVersion string        `json:"apiVersion"`
	Now        time.Time     `json:"now"`
	Counted    TopCounted    `json:"counted"`
	Steps      []HistoryStep `json:"steps"`
}

// HistoryStep has what was counted between two times. Its fields are those of TopItem.
type HistoryStep struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Connections uint64    `json:"connections"`
	Refused     uint64    `json:"refused"`
	BytesIn     uint64    `json:"bytesIn"`
	BytesOut    uint64    `json:"bytesOut"`
}

// history answers for the Service that the parameters namespace and name name, or for all.
func (h *handler) history(_ http.ResponseWriter, r *http.Request) (any, error) {
	var of *service.Key
	if key := (service.Key{Namespace: r.URL.Query().Get("namespace"), Name: r.URL.Query().Get("name")}); key.Name != "" {
		of = &key
	}
	made, err := h.source.History(r.Context(), of)
	if err != nil {
		return nil, failure{http.StatusNotFound, err.Error()}
	}
	if made.Steps == nil {
		made.Steps = []HistoryStep{}
	}
	made.APIVersion, made.Now = Version, time.Now().UTC()
	return made, nil
}
