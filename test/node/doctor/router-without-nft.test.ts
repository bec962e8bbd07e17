// A router that cannot make itself ready: the doctor names what is missing, not the way to the network.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { writeRouterFile } from "../../../src/node/routing/router-file.ts";
import { installNft, noNft } from "../../../src/platform/nftables.ts";
import { makeNodeWorld } from "../../support/node.ts";

const Report = v.object({
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), remedy: v.optional(v.string()) })),
});

test("the doctor of a router without nft says how to install it", async () => {
  await using world = await makeNodeWorld();
  const { directory, config } = await world.register();
  const network = "192.168.7.0/24";
  await world.api("POST", "/api/org/acme/routes/", { network, via: [config.node_id] });
  await world.agent(["sync-config"]);
  writeRouterFile(directory, { forwarding: {}, networks: { [network]: { state: "not_ready", why: noNft } } });
  const { checks } = v.parse(Report, (await world.agent(["doctor", "--json"])).json);
  expect(checks.find(({ id }) => id === "forwarding")).toMatchObject({ verdict: "fail", remedy: installNft });
});
