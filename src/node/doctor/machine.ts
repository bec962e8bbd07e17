// Examines the machine: privileges, tun device, engine, disk space, keyring, services.

import { accessSync, constants, existsSync } from "node:fs";
import { brand } from "../../brand.ts";
import { diskSpaceAt } from "../../base/disk-space.ts";
import { advisoriesFor, isOlderThan, parseEngineVersion, recommendedEngine } from "../../engine/features.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { planChanges } from "../../platform/machine-changes.ts";
import { isLinux } from "../../platform/network/kernel.ts";
import { safeCommand, whyUnsafe } from "../../platform/program-safety.ts";
import { serviceCommand, serviceManager } from "../../platform/service-manager.ts";
import { needsWintun, wintunFor } from "../../platform/windows/wintun.ts";
import type { System } from "../../base/system.ts";
import { engineVersion, refuseEngineVersion } from "../engine/engine.ts";
import { isInstalled } from "../enroll/install-wintun.ts";
import { keyringState } from "../files/keyring.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { findEngine } from "../engine/find-engine.ts";
import { areNamesOn } from "../enroll/optional-services.ts";
import { planServices, readModes, type ServiceSettings } from "../enroll/services.ts";
import { unitsWithoutProgram } from "../enroll/installed-units.ts";
import { namesPlaces } from "../../platform/names-places.ts";
import { hostsFile } from "../names/keep-names.ts";
import { readServiceState } from "../names/service-state.ts";
import { examineNames } from "./examine-names.ts";
import {
  asRoot,
  deniedToRoot,
  fail,
  runCheck,
  ok,
  skipped,
  warn,
  type Check,
  type Finding,
} from "./check.ts";
import { readText } from "../../base/open-file.ts";

const run = brand.executable;

/** `planeData`: where a control plane of this machine would have its data. What a check throws becomes its finding (runCheck). */
export function examineMachine(
  settings: ServiceSettings,
  planeData: string,
  system: System,
): Promise<Check[]> {
  return Promise.all([
    runCheck({ id: "rights" }, () => examineRights(system)),
    runCheck({ id: "tun" }, () => examineTun(settings, system)),
    runCheck({ id: "capability" }, () => examineCapability(system)),
    runCheck({ id: "engine" }, () => examineEngine(settings, system)),
    runCheck({ id: "disk" }, () => examineConfigDisk(settings)),
    ...(existsSync(planeData)
      ? [runCheck({ id: "control-plane-disk" }, () => examineDisk(planeData, planeRemedy))]
      : []),
    runCheck({ id: "keyring" }, () => examineKeyring(system)),
    runCheck({ id: "units" }, () => examineUnits(settings, system)),
    runCheck({ id: "names" }, () => examineNamesOf(settings, system)),
  ]);
}

function examineRights({ isRoot }: System): Finding {
  return isRoot
    ? ok("running as root")
    : warn("not running as root: cannot examine keys and services", asRoot);
}

function examineTun({ overlayBinary }: ServiceSettings, { platform, arch, isRoot }: System): Finding {
  if (needsWintun({ platform })) {
    const wintun = wintunFor(arch, overlayBinary);
    return isInstalled(wintun)
      ? ok(`${wintun.path} is installed`)
      : fail(`no ${wintun.path}`, `${run} install-tap`);
  }
  if (!isLinux({ platform })) return skipped(`${platform} has no /dev/net/tun`);
  const path = "/dev/net/tun";
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return ok(`${path} can be opened`);
  } catch (error) {
    if (systemErrorCode(error) === "EACCES")
      return isRoot
        ? fail(`${path}: permission denied`, deniedToRoot)
        : skipped(`not seen: ${path}: permission denied`);
    return fail(`there is no ${path}`, "modprobe tun # in a container: pass --device /dev/net/tun");
  }
}

/** The bit of CAP_NET_ADMIN (linux/capability.h). */
const netAdminBit = 12n;

function examineCapability({ platform }: System): Finding {
  if (!isLinux({ platform })) return skipped(`${platform} has no capabilities`);
  const mask = /^CapBnd:\s*([0-9a-f]+)$/m.exec(readText("/proc/self/status"))?.[1] ?? "0";
  return (BigInt(`0x${mask}`) >> netAdminBit) % 2n === 1n
    ? ok("CAP_NET_ADMIN is available")
    : fail("CAP_NET_ADMIN is not available", "In a container: pass --cap-add NET_ADMIN");
}

async function examineEngine(settings: ServiceSettings, system: System): Promise<Finding> {
  const found = findEngine(settings, system);
  if (found === undefined)
    return fail(`no overlay engine at ${settings.overlayBinary}`, `${run} overlay install`);
  const version = await engineVersion(found.path, system);
  refuseEngineVersion(version);
  const advisories = advisoriesFor(version).map(({ id, fixed_in }) => `${id} (fixed in ${fixed_in})`);
  if (advisories.length > 0)
    return warn(`${found.path} ${version}: ${advisories.join(", ")}`, `${run} overlay update`);
  if (isOlderThan(parseEngineVersion(version), recommendedEngine)) {
    const recommended = recommendedEngine.join(".");
    return warn(`${found.path} ${version}; ${recommended} or later is recommended`, `${run} overlay update`);
  }
  return ok(`${found.path} ${version}`);
}

function examineConfigDisk({ configRoot }: ServiceSettings): Finding {
  const path = existsSync(configRoot) ? configRoot : "/";
  return examineDisk(
    path,
    "Free some disk space: once none is left, no change and no revocation can be saved",
  );
}

const planeRemedy =
  "Free some disk space, or give it a larger disk: once none is left, nothing can be changed";

function examineDisk(path: string, remedy: string): Finding {
  const found = diskSpaceAt(path);
  if (found === undefined) return skipped(`the system does not tell how full the disk of ${path} is`);
  if (found.state === "ok") return ok(found.text);
  return found.state === "full" ? fail(found.text, remedy) : warn(found.text, remedy);
}

async function examineKeyring(system: System): Promise<Finding> {
  switch (await keyringState(system)) {
    case "absent":
      return skipped("no session bus: the token is only in credentials.json, which is sufficient");
    case "answers":
      return ok("the keyring answers");
    case "silent":
      return warn(
        "the keyring does not answer: the token is read from credentials.json",
        "Unlock the keyring",
      );
  }
}

function examineNamesOf(settings: ServiceSettings, system: System): Promise<Finding> {
  const { configRoot, stateDb } = settings;
  const { way, statePath } = namesPlaces(system, stateDb);
  const service = readServiceState(statePath);
  const isOn = areNamesOn(settings, system);
  return examineNames({ configRoot, path: hostsFile, service, isOn, way }, system);
}

function examineUnits(settings: ServiceSettings, system: System): Finding {
  if (serviceManager(system) === undefined) return skipped("systemd does not run on this machine");
  if (listOrganizations(settings.configRoot).length === 0)
    return skipped("no organization is registered: none is needed");
  const engineFile = findEngine(settings, system)?.path ?? settings.overlayBinary;
  const unsafe = [system.executable, engineFile].flatMap((path) => {
    const why = whyUnsafe(path, system);
    return why === undefined ? [] : [{ path, why }];
  });
  if (unsafe.length > 0) {
    const what = unsafe.map(({ path, why }) => `${path}: ${why}`).join(", ");
    const cures = unsafe.flatMap(({ path }) => (isLinux(system) ? safeCommand(path) : undefined) ?? []);
    return fail(`services of root must not run ${what}`, cures.join(" && ") || serviceCommand(system));
  }
  const broken = unitsWithoutProgram();
  if (broken.length > 0)
    return fail(
      broken.map(({ unit, program }) => `${unit} starts ${program}, which is gone`).join("; "),
      serviceCommand(system),
    );
  const steps = planChanges(planServices(readModes(settings.configRoot), settings, system));
  const drifted = steps.flatMap((step) =>
    step.step === "file" && step.change !== "same" ? [step.path] : [],
  );
  return drifted.length === 0
    ? ok("the service files are current")
    : warn(`not current: ${drifted.join(", ")}`, serviceCommand(system));
}
