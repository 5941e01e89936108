// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// A real API server forwards requests of kubectl sluice to the proxy of a node, and answers for a pod that does not
// listen.
func TestFleet(t *testing.T) {
	c := harness.NewCluster(t)
	c.StartProxy(harness.NFTables, testenv.Settings(t, "inspection: {bindAddress: 0.0.0.0:10253}"))
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A)
	reachAll(t, "the service works", []*harness.Host{c.X}, clusterIPs(t, web), c.A)
	for _, node := range []*harness.Host{c.N1, c.N2} {
		fleetPod(t, c, node)
	}
	wait, err := c.Fleet("wait", "svc/web", "-n", web.Namespace, "--nodes", "1")
	if err != nil {
		t.Fatalf("%v\n%s", err, wait)
	}
	for _, words := range [][]string{{"where", "svc/web", "-n", web.Namespace, "-o", "wide"}, {"status"}} {
		out, err := c.Fleet(words...)
		if err == nil {
			t.Errorf("%s: no error although a node does not answer", words[0])
		}
		for _, want := range []string{harness.NodeName, "1 of 2 nodes", "1 of 2 nodes did not answer", "connection refused"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", words[0], want, out)
			}
		}
	}
}

// With security.inspection and the objects of deploy/fleet, a node accepts tokens of the ServiceAccount sluice-fleet
// for the audience sluice.dev, and no others. The plugin requests one.
func TestFleet_Tokens(t *testing.T) {
	c := harness.NewCluster(t)
	all, err := harness.BuildManifests("deploy/fleet")
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet" || o.GetKind() == "ConfigMap"
	})
	for _, o := range all {
		if o.GetKind() == "ClusterRoleBinding" && o.GetName() == "sluice-auth-delegator" { // the proxy of these tests is a user
			o.Object["subjects"] = []any{map[string]any{"kind": "User", "name": "system:kube-proxy", "apiGroup": "rbac.authorization.k8s.io"}}
		}
	}
	if _, err := c.Server.Apply(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	proxy := c.StartProxy(harness.NFTables, testenv.Settings(t, "inspection: {bindAddress: 0.0.0.0:10253}\nsecurity: {inspection: true}"))
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A)
	reachAll(t, "the service works", []*harness.Host{c.X}, clusterIPs(t, web), c.A)
	fleetPod(t, c, c.N1)
	out, err := c.Fleet("wait", "svc/web", "-n", web.Namespace)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, proxy.LogFile())
	}

	accounts := c.Client.CoreV1().ServiceAccounts(deployedIn)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := func(account string, audiences ...string) string {
		made, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.Status.Token
	}
	for name, given := range map[string]struct {
		token string
		code  int
		text  string
	}{
		"may":                      {token("sluice-fleet", inspect.TokenAudience), 200, `"mode":"nftables"`},
		"may not":                  {token("stranger", inspect.TokenAudience), 403, "system:serviceaccount:kube-system:stranger"},
		"no token":                 {"", 401, "send a token of the cluster (Sluice-Authorization: Bearer)"},
		"another audience":         {token("sluice-fleet", "vault"), 401, "does not accept the token"},
		"audience: the API server": {token("sluice-fleet"), 401, "does not accept the token"},
	} {
		if code, body := askPod(t, c, "https:sluice-"+c.N1.Name()+":10253", given.token); code != given.code || !strings.Contains(body, given.text) {
			t.Errorf("%s: %d %.300s, want %d %q", name, code, body, given.code, given.text)
		}
	}
}

// askPod asks the proxy in a pod for its state, through the API server.
func askPod(t *testing.T, c *harness.Cluster, pod, token string) (code int, body string) {
	t.Helper()
	client := c.Client.CoreV1().RESTClient().(*rest.RESTClient)
	at := client.Get().Namespace(deployedIn).Resource("pods").Name(pod).SubResource("proxy").Suffix(inspect.PathStatus).URL()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set(inspect.TokenHeader, "Bearer "+token)
	}
	answer, err := client.Client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() // it is read to the end
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// fleetPod creates the pod of Sluice on a node, as the controller and the kubelet would.
func fleetPod(t *testing.T, c *harness.Cluster, node *harness.Host) {
	t.Helper()
	name := node.Name()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-" + name, Labels: map[string]string{"app.kubernetes.io/name": "sluice"}},
		Spec:       corev1.PodSpec{NodeName: name, HostNetwork: true, Containers: []corev1.Container{{Name: "sluice", Image: "sluice"}}},
	}
	harness.Eventually(t, "a pod is accepted", func(ctx context.Context) error {
		pods := c.Client.CoreV1().Pods(deployedIn)
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		made.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: node.V4.String(), PodIPs: []corev1.PodIP{{IP: node.V4.String()}}}
		_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	})
}
