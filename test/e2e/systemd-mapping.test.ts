// Server mode on a booted machine: check-auth keeps the port of a router that knows NAT-PMP alone.

import { expect, test } from "bun:test";
import { installMissing } from "../support/debian.ts";
import { makeMachinePair } from "../support/machine-pair.ts";
import { putBehindNat } from "../support/nat.ts";
import { describeMachine } from "../support/nspawn.ts";
import { publicPrefix, startPortMapper, type PortMapper } from "../support/port-mapper.ts";

installMissing(["/usr/sbin/miniupnpd"]);

describeMachine("a port mapping in server mode", () => {
  test("is asked for by NAT-PMP, outlives a power cut, and ends with the registration", async () => {
    let router: PortMapper | undefined;
    await using pair = await makeMachinePair({
      prefix: publicPrefix,
      async prepare(lan, directory) {
        await using made = new AsyncDisposableStack();
        const host = lan.host("web");
        made.use(putBehindNat(host, "masquerade"));
        router = made.use(await startPortMapper(host, directory, ["enable_upnp=no"]));
        router.dropPcp();
        return made.move();
      },
    });
    const { web } = pair;
    const isMapped = "agent netcheck acme | grep 'The router 10.200.2.1 maps 45.32.9.2:.* by NAT-PMP'";
    await web.until(isMapped, 60_000);
    const [lease = ""] = router?.leases() ?? [];
    expect(lease).toMatch(/^UDP:\d+:10\.200\.2\.2:\d+:/);
    await web.cutPower();
    await web.boot();
    await web.until(isMapped, 60_000);
    expect(router?.leases()).toHaveLength(1);
    await web.must("agent unregister --org-slug acme", 60_000);
    expect(router?.leases()).toEqual([]);
  }, 300_000);
});
