// A clock that is behind makes certificates look wrong. The doctor knows one cure for that.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { unreachable } from "../../../src/node/contact/client.ts";
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
