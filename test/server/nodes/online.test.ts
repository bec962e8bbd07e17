import { expect, test } from "bun:test";
import * as v from "valibot";
import { DownloadAnswer } from "../../../src/protocol/download.ts";
import { Node } from "../../../src/protocol/node.ts";
import { paths } from "../../support/paths.ts";
import { until } from "../../support/until.ts";
import { checkin, json, password, populate, post, useControlPlane } from "../../support/restoring.ts";

useControlPlane();

const Shown = v.pick(Node, ["name", "online", "last_checkin_at"]);

test("list, show, download and admin commands agree on which nodes are online", async () => {
  const { url, a } = await populate();
  expect((await checkin(url, a)).status).toBe(200);
  // Reports are written within a second. Another process sees them then.
  await until(async () => v.parse(Shown, await json("node show acme a")).last_checkin_at);
  const signedIn = await post(url, "/api/token/", { email: "ada@example.org", password });
  const { access } = v.parse(v.object({ access: v.string() }), await signedIn.json());
  const get = async (path: string, token = access): Promise<unknown> =>
    (await fetch(url + path, { headers: { Authorization: `Bearer ${token}` } })).json();
  const [first, second] = v.parse(v.array(Shown), await get("/api/org/acme/nodes/"));
  if (first === undefined || second === undefined) throw new Error("There are no two nodes");
  expect(first).toEqual({ name: "a", online: true, last_checkin_at: expect.any(String) });
  expect(second).toEqual({ name: "b", online: false, last_checkin_at: null });

  expect(v.parse(Shown, await get(paths.node("acme", a.node.id)))).toEqual(first);
  const download = await get(paths.downloadConfig("acme", a.node.id), a.api_token);
  expect(v.parse(Shown, v.parse(DownloadAnswer, download).node)).toEqual(first);
  const listed = v.parse(v.object({ nodes: v.array(Shown) }), await json("node list acme"));
  expect(listed.nodes).toEqual([first, second]);
  for (const each of [first, second])
    expect(v.parse(Shown, await json(`node show acme ${each.name}`))).toEqual(each);
}, 120_000);
