// Whatever a node refuses of a download, the revocations beside it are applied.

import { beforeEach, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { connectOrganization } from "../../../src/node/contact/requests/connection.ts";
import { fetchRevocations } from "../../../src/node/contact/revocations-alone.ts";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeControl } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const revoked = "a".repeat(64);
const blocklist = () => here.section("pki")["blocklist"];

const Body = v.looseObject({ files: v.looseObject({ "node-config.json": v.string() }) });
type Body = v.InferOutput<typeof Body>;

/** The download, changed by `change`. */
function send(change: (body: Body) => void): void {
  const through = here.world.system.fetch;
  here.world.system.fetch = async (url, init) => {
    const answer = await through(url, init);
    if (!url.includes("download_config")) return answer;
    const body = v.parse(Body, await answer.json());
    change(body);
    return Response.json(body, { status: answer.status, headers: answer.headers });
  };
}

function setNodeConfig(body: Body, change: object): void {
  const present: object = JSON.parse(body.files["node-config.json"]);
  body.files["node-config.json"] = JSON.stringify({ ...present, ...change });
}

beforeEach(() => {
  here.tamper((config) => ({ ...config, pki: { ca: "x", cert: "x", key: "x", blocklist: [revoked] } }));
});

const day = 86_400_000;
const refusals: [string, RegExp, () => void][] = [
  // The clock of this machine is behind: the same as a control plane whose clock was ahead when it signed.
  [
    "a certificate that is not valid yet",
    /not valid yet/,
    () => (here.world.system.now = () => here.world.server.clock.ms - 5 * day),
  ],
  [
    "an expired certificate",
    /expired/,
    () => (here.world.system.now = () => here.world.server.clock.ms + 400 * day),
  ],
  [
    "a certificate for another key",
    /another key/,
    () => writeFileSync(join(here.organization.directory, "host.key"), makeHostKey().privatePem),
  ],
  ["a certificate that cannot be read", /refused/, () => send(({ files }) => (files["host.crt"] = "none"))],
  ["a CA that cannot be read", /refused/, () => send(({ files }) => (files["ca.crt"] = "none"))],
  [
    "an X.509 certificate for another key",
    /refused|node\.crt/,
    () => send(({ files }) => (files["node.crt"] = "none")),
  ],
  [
    "another organization",
    /organization "other"/,
    () => send((body) => setNodeConfig(body, { org_slug: "other" })),
  ],
  ["another node", /another node/, () => send((body) => setNodeConfig(body, { node_id: 999 }))],
  ["another name", /is for "/, () => send((body) => setNodeConfig(body, { name: "other" }))],
  [
    "another address",
    /another address/,
    () => send((body) => setNodeConfig(body, { ip_address: "10.77.9.9" })),
  ],
  ["a damaged node-config.json", /not valid/, () => send(({ files }) => (files["node-config.json"] = "{"))],
];

test.each(refusals)(
  "%s is refused, and the revocations beside it are in force",
  async (_, reason, refuse) => {
    refuse();
    const control = makeControl();
    const error = await rejection(here.sync(control));
    expect(error.message).toMatch(reason);
    expect(error.message).toEndWith("; its revocations are in force");
    expect(blocklist()).toEqual([revoked]);
    expect(control.asked).toEqual(["reload"]);
    // The next answers are refused too, and leave the engine alone.
    await rejection(here.sync(control));
    expect(control.asked).toEqual(["reload"]);
  },
);

test.each(refusals)("with a damaged node-config.json here: %s", async (_, __, refuse) => {
  refuse();
  const { world, organization } = here;
  const { system, log } = world;
  const withClient = connectOrganization(organization, system, log);
  const deps = { control: makeControl(), log, command: "test", system, withClient };
  const end = await fetchRevocations(organization, deps);
  expect(end).toBe("; its revocations are in force");
  expect(blocklist()).toEqual([revoked]);
});
