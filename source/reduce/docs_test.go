// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestDocs_NameKeys: docs/configuration.md contains every annotation, label and taint that counts, and every scheduler.
func TestDocs_NameKeys(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{annotationScheduler, annotationFlags, annotationBalancing, annotationSlowStart, annotationOutlier, annotationZoneMin, annotationZoneShare, annotationDrain, annotationFlowLog, annotationNoEndpoints, annotationDenyRanges,
		annotationProxyProtocol, annotationWeight, annotationCiliumWeight, discoveryv1.LabelServiceName, corev1.EndpointsLastChangeTriggerTime,
		corev1.LabelTopologyZone, autoscalerTaint, LabelServiceProxyName, "service.kubernetes.io/headless"} {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("%s is missing", key)
		}
	}
	for _, value := range Schedulers {
		if !strings.Contains(string(page), "`"+value+"`") {
			t.Errorf("scheduler %s is missing", value)
		}
	}
}
