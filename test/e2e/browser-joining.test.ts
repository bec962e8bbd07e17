// `agent up URL`: a machine joins without a key, confirmed by a user in a real browser, with a control plane that has a CA of
// its own and real engines.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { Database } from "bun:sqlite";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runAgent } from "../support/agent.ts";
import { chromiumPath, signIn, violationsIn } from "../support/console.ts";
import { inCi, installMissing } from "../support/debian.ts";
import { asRoot } from "../support/engines.ts";
import { member, nebula, pings, startJoiningScene, type JoiningScene } from "../support/joining-scene.ts";

setDefaultTimeout(120_000);
const missing = installMissing([chromiumPath, nebula, "/usr/sbin/ip", "/usr/bin/curl"]);
const withBrowser = missing === undefined || inCi ? test : test.skip;

asRoot("a machine without a key", () => {
  let scene: JoiningScene;
  beforeAll(async () => {
    if (missing !== undefined) throw new Error(missing);
    scene = await startJoiningScene(["box"]);
  });
  afterAll(() => scene[Symbol.asyncDispose]());

  withBrowser("trusts no control plane with a CA of its own without the fingerprint", async () => {
    const etc = join(scene.directory, "none");
    const { status, stderr } = await runAgent(
      ["up", scene.url, "--foreground", "--config-root", etc, "--overlay-binary", nebula],
      { inside: scene.host("box").inside },
    );
    expect([status, stderr]).toEqual([6, expect.stringContaining("--ca-fingerprint")]);
    expect(existsSync(etc)).toBe(false);
  });

  withBrowser("leaves nothing behind when its wait is interrupted", async () => {
    const { waiting, end, etc } = scene.up(scene.host("box"), "gone", scene.here);
    await waiting();
    expect(await end("SIGINT")).not.toBe(0);
    expect(existsSync(etc) ? readdirSync(etc) : []).toEqual([]);
  });

  withBrowser("goes on by itself when a user has typed its four words, up to the ping", async () => {
    const { page, admin } = scene;
    const box = scene.host("box");
    const machine = scene.up(box, "box", scene.here);
    const { url, words } = await machine.waiting();
    expect(url).toStartWith(`${scene.url}/console/-/join/?request=`);
    await page.goto(url);
    await signIn(page, member);
    await page.getByText(box.address).waitFor();
    await page.getByText("None of your organizations lets you").waitFor();
    await admin("org update acme --self-enrollment members");
    await page.reload();
    const field = page.getByLabel("The four words that the machine shows");
    const button = page.getByRole("button", { name: "Let it join" });
    await field.fill("maple maple maple maple");
    expect(await violationsIn(page)).toEqual([]);
    await button.click();
    await page.getByText("4 more tries").waitFor();
    await field.fill("");
    await field.pressSequentially(` ${words.join(" ").toUpperCase()} `);
    await button.click();
    await page.getByText("goes on by itself").waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await page.goto(`${scene.url}/console/acme/machines/`);
    await page.getByRole("link", { name: "Add a machine" }).click();
    await page.getByText(`sudo agent up ${scene.url} --org acme`).waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await pings(box);
    expect(machine.said()).toContain('{"state":"confirmed","org_slug":"acme"}\n');
    const nodes = JSON.stringify(await admin("node list acme"));
    expect(nodes).toMatch(/"name":"box".*"groups":\[\].*"owner_id":\d+/);
    await machine.end("SIGTERM");
    // By its files, without another confirmation.
    const again = scene.up(box, "box", scene.here);
    await pings(box);
    expect(again.said()).not.toContain("waiting");
  });

  withBrowser("is confirmed again by its user in the browser, without a lost ping", async () => {
    const { page, admin } = scene;
    await admin("org update acme --reauthenticate 8");
    // Two days pass.
    using database = new Database(join(scene.data, "control.db"));
    database.run("UPDATE organizations SET reauthenticate_from = reauthenticate_from - 172800000");
    database.run("UPDATE nodes SET registered_at = registered_at - 172800000");
    const ping = ["ping", "-q", "-i", "0.2", "-c", "25", "-W", "1", "10.77.0.1"];
    const pinging = Bun.spawn(scene.host("box").inside(ping), { stdout: "pipe" });
    await page.goto(`${scene.url}/console/acme/`);
    await page.getByText("Machines of yours to confirm").waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await page.getByRole("link", { name: "box" }).click();
    await page.getByText("Its user confirms it by").waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await page.goBack();
    await page.getByRole("button", { name: "It is still mine" }).click();
    await page.getByText("Machines of yours to confirm").waitFor({ state: "detached" });
    expect(await new Response(pinging.stdout).text()).toContain("25 packets transmitted, 25 received");
  });
});
