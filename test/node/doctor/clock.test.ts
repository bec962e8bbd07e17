// A clock that is behind makes certificates look wrong. The doctor knows one cure for that.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { examineControlPlane } from "../../../src/node/doctor/control-plane.ts";
import { unreachable } from "../../../src/node/contact/requests/send-request.ts";
import { setClock } from "../../../src/node/health/findings.ts";
import { makeNodeWorld } from "../../support/node.ts";

const Report = v.object({
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), remedy: v.optional(v.string()) })),
});

test("400 days behind, the doctor has no cure for certificates but the clock", async () => {
  await using world = await makeNodeWorld();
  await world.register();
  const examine = async () => {
    const { checks } = v.parse(Report, (await world.agent(["doctor", "--json"])).json);
    return checks.filter(({ id }) => /certificate/.test(id));
  };
  expect((await examine()).map(({ verdict }) => verdict)).not.toContain("fail");
  world.server.clock.ms -= 400 * 86_400_000;
  const wrong = (await examine()).filter(({ verdict }) => verdict === "fail" || verdict === "warn");
  expect(wrong.map(({ id, remedy }) => [id, remedy])).toEqual([["certificate", setClock]]);
  // TLS says it first: the server's certificate is one of the future.
  const early = Object.assign(new Error("early"), { code: "CERT_NOT_YET_VALID" });
  expect(unreachable("https://control.example", "its certificate is not valid yet", early).details.hint).toBe(
    setClock,
  );
});

test("an answer that takes long is no wrong clock, and a wrong clock is told all the same", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const { clock } = world.server;
  /** The server's clock is `aheadMs` before this machine's, and its answer takes `tookMs` on the way. */
  const examine = (aheadMs: number, tookMs: number) => {
    const fetch: typeof world.system.fetch = async () => {
      clock.ms += tookMs / 2;
      const headers = { Date: new Date(clock.ms + aheadMs).toUTCString() };
      clock.ms += tookMs / 2;
      return new Response("{}", { headers });
    };
    return examineControlPlane(organization, { system: { ...world.system, fetch }, log: world.log });
  };
  for (const [aheadMs, tookMs, verdict] of [
    [0, 0, "ok"],
    [0, 12_000, "ok"],
    [1000, 12_000, "ok"],
    [20_000, 12_000, "warn"],
    [-20_000, 12_000, "warn"],
    [400_000, 2000, "fail"],
    [-400_000, 2000, "fail"],
  ] as const)
    expect([aheadMs, tookMs, (await examine(aheadMs, tookMs)).verdict]).toEqual([aheadMs, tookMs, verdict]);
  // A Date header has no milliseconds, and a server can make it a second before it answers.
  expect((await examine(-1000, 0)).evidence).toContain("this clock is 0 s off");
});
