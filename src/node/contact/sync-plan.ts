// Plans `sync-config --dry-run`: downloads and checks the configuration, and changes nothing on this machine.

import { apiPath } from "../../api/endpoint.ts";
import { nodeCallsApi } from "../../api/node-calls.ts";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { planFile, planReplaced } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planSocketDirectory } from "../../platform/systemd/control-socket.ts";
import { generationFiles, filesInForce } from "../files/generations.ts";
import { readCredentials, type Organization } from "../files/organizations.ts";
import { fetchConfig, prepareNext, type Next, type SyncDeps } from "./next-config.ts";
import { changeNeeds, hasSameFiles, runningConfigYml } from "./applying/change-needs.ts";

/** `renews`: the command renews the node's certificates first, so their new content is not known. */
export async function planSync(
  organization: Organization,
  deps: SyncDeps,
  { renews = false } = {},
): Promise<Step[]> {
  const { slug, directory, config } = organization;
  const url =
    readCredentials(directory).api_base + apiPath(nodeCallsApi.download, { slug, id: config.node_id });
  const prelude: Step[] = [{ step: "request", method: "GET", url }, ...planSocketDirectory(directory)];
  const download = await fetchConfig(organization, deps);
  const next = await prepareNext(organization, download, deps);
  const files: Record<string, string | undefined> = filesAfter(next, directory);
  const writes = generationFiles.flatMap((name): Step[] => {
    const content = files[name];
    const path = join(directory, name);
    if (renews && renewedFiles.includes(name) && (content !== undefined || existsSync(path)))
      return [planReplaced(path, 0o644)];
    return content === undefined ? [] : [planFile(path, content, 0o644)];
  });
  const isSame = writes.every((step) => step.step === "file" && step.change === "same");
  return [...prelude, ...(isSame ? [] : await engineSteps(directory, next, deps)), ...writes];
}

/**
 * The new content by name. Files that differ in the version number alone are not written again. Empty without `next`: nothing new was
 * sent, and an older program kept no source of the files in force.
 */
function filesAfter(next: Next | undefined, directory: string): Record<string, string | undefined> {
  if (next === undefined) return {};
  return hasSameFiles(next, directory)
    ? filesInForce(directory)
    : { ...next.files, "config.yml": next.configYml };
}

const renewedFiles: readonly string[] = ["node.crt", "host.crt"];

/** The engine's test of the new files, and what makes a running engine use them. */
async function engineSteps(
  directory: string,
  next: Next | undefined,
  { engine, control }: SyncDeps,
): Promise<Step[]> {
  const path = join(directory, "config.yml");
  const test: Step[] =
    engine.path === undefined ? [] : [{ step: "run", argv: [engine.path, "-test", "-config", path] }];
  if (engine.path === undefined || !(await control.running())) return test;
  const running = { configYml: runningConfigYml(directory), version: engine.running };
  const restarts = next !== undefined && changeNeeds(directory, running, next).restart;
  const verb = restarts ? "restart" : "reload";
  return [...test, { step: "run", argv: [verb, "the overlay engine"] }];
}
