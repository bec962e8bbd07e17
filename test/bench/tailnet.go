// A control server, a relay and a STUN server for the tailnets of beside-others.ts and networks.ts, in one process, all for
// tests: built inside the source of Tailscale. Prints its address when it listens.

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"

	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stunserver"
	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/key"
)

func main() {
	address := os.Args[1]
	quiet := func(string, ...any) {}
	derp := httptest.NewUnstartedServer(derpserver.Handler(derpserver.New(key.NewNode(), quiet)))
	derp.Listener.Close()
	derp.Listener = listen(address)
	derp.Config.TLSNextProto = make(map[string]func(*http.Server, *tls.Conn, http.Handler))
	derp.StartTLS()
	stun := stunserver.New(context.Background())
	if err := stun.Listen(net.JoinHostPort(address, "3478")); err != nil {
		panic(err)
	}
	go stun.Serve()
	ipv4, ipv6 := address, "none"
	if net.ParseIP(address).To4() == nil {
		ipv4, ipv6 = "none", address
	}
	node := &tailcfg.DERPNode{
		Name: "1", RegionID: 1, HostName: address, IPv4: ipv4, IPv6: ipv6, STUNPort: 3478,
		DERPPort: derp.Listener.Addr().(*net.TCPAddr).Port, InsecureForTests: true,
	}
	control := listen(address)
	url := "http://" + control.Addr().String()
	server := &testcontrol.Server{
		Logf:             quiet,
		ExplicitBaseURL:  url,
		AllNodesSameUser: true,
		DERPMap: &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{
			1: {RegionID: 1, RegionCode: "test", Nodes: []*tailcfg.DERPNode{node}},
		}},
	}
	fmt.Println(url)
	if err := http.Serve(control, server); err != nil {
		panic(err)
	}
}

func listen(address string) net.Listener {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		panic(err)
	}
	return listener
}
