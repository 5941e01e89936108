package main

import "testing"

func TestParseAsked(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="endpointslices",verb="LIST"} 2
apiserver_request_total{code="410",resource="endpointslices",verb="LIST"} 1
apiserver_request_total{code="200",resource="endpointslices",verb="WATCH"} 7
apiserver_request_total{code="200",resource="services",verb="LIST"} 50
apiserver_request_total{code="429",resource="endpointslices",verb="WATCH"} 4
apiserver_request_total{code="504",resource="services",verb="PUT"} 9
# TYPE apiserver_longrunning_requests gauge
apiserver_longrunning_requests{resource="endpointslices",verb="WATCH"} 5
apiserver_longrunning_requests{resource="endpointslices",verb="CONNECT"} 80
# TYPE apiserver_watch_list_duration_seconds histogram
apiserver_watch_list_duration_seconds_bucket{resource="endpointslices",le="+Inf"} 4
apiserver_watch_list_duration_seconds_sum{resource="endpointslices"} 0.5
apiserver_watch_list_duration_seconds_count{resource="endpointslices"} 4
# TYPE apiserver_watch_events_sizes histogram
apiserver_watch_events_sizes_bucket{resource="endpointslices",le="+Inf"} 10
apiserver_watch_events_sizes_sum{resource="endpointslices"} 17000
apiserver_watch_events_sizes_count{resource="endpointslices"} 10
apiserver_watch_events_sizes_bucket{resource="services",le="+Inf"} 3
apiserver_watch_events_sizes_sum{resource="services"} 900
apiserver_watch_events_sizes_count{resource="services"} 3
`
	for _, c := range []struct {
		resources []string
		want      askedOf
	}{
		{[]string{"endpointslices"}, askedOf{lists: 3, streams: 4, watches: 5, rejected: 4, events: 10, eventBytes: 17000}},
		{[]string{"endpointslices", "services"}, askedOf{lists: 53, streams: 4, watches: 5, rejected: 13, events: 13, eventBytes: 17900}},
	} {
		if got, err := parseAsked([]byte(text), c.resources...); err != nil || got != c.want {
			t.Errorf("%v: %+v, %v; want %+v", c.resources, got, err, c.want)
		}
	}
}
