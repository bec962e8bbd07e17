// The line to paste on a new machine, with the join key.

import {
  longestLifeOnCommandLineS,
  type registrationTokensApi,
} from "../../api/tokens/registration-tokens.ts";
import { releasesApi } from "../../api/releases.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { useState } from "preact/hooks";
import { currentSlug } from "../contact/me.ts";
import { nameOfKey } from "./token-words.ts";
import { pathOf } from "../frame/router.ts";
import { useResource } from "../contact/resource.ts";
import { Segments } from "../ui/button.tsx";
import { Line, type LineProps, TextWithCommands } from "../ui/parts.tsx";
import { Qr } from "../ui/qr.tsx";

export type Token = SentOf<typeof registrationTokensApi.create>;

type System = "unix" | "windows" | "qr" | "script";
const systems = [
  ["unix", "Linux, macOS"],
  ["windows", "Windows"],
  ["qr", "QR code"],
  ["script", "Script"],
] as const;

export function Paste({ token }: { token: Token }) {
  const [system, setSystem] = useState<System>("unix");
  const [isApart, setApart] = useState(false);
  return (
    <>
      <div class="mt8">
        <Segments label="System" value={system} choices={systems} set={(word) => setSystem(word)} />
      </div>
      <Lines {...{ token, system, isApart }} keepApart={() => setApart(true)} />
      <p class="help">
        The join key is shown only now. It is “<bdi>{nameOfKey(token)}</bdi>” under{" "}
        <a href={pathOf(currentSlug.value ?? "", "tokens")}>Keys and tokens</a>, where it can be revoked.
      </p>
    </>
  );
}

type LinesProps = {
  token: Token;
  system: System;
  /** The key is asked for, so that it is not kept in the shell's history. */
  isApart: boolean;
  keepApart(): void;
};

function Lines({ token, system, ...apart }: LinesProps) {
  if (system === "qr")
    return (
      <>
        <p class="quiet mt8">For a device with a camera. It holds the same key: keep it as secret.</p>
        <Qr text={token.join_key} label="The join key as a QR code" />
      </>
    );
  if (system === "script")
    return (
      <>
        <p class="quiet mt8">Without agent up, for scripts:</p>
        <Command text={token.command} />
      </>
    );
  if (system === "windows")
    return (
      <>
        <p class="quiet mt8">
          In a terminal of an administrator, with the program and its driver (agent install-tap) installed.
        </p>
        <Up command="agent up" token={token} {...apart} />
      </>
    );
  return (
    <>
      <Install />
      <Up command="sudo agent up" token={token} {...apart} />
    </>
  );
}

/** The line that installs the program, or why this control plane has none. */
function Install() {
  const { data } = useResource(apiPath(releasesApi.installer, {}), { isCalm: true });
  if (data === undefined) return null;
  const { command, reason } = data;
  return command === null ? (
    <p class="quiet mt8">
      The machine needs the program. <TextWithCommands text={reason ?? ""} />
    </p>
  ) : (
    <>
      <p class="quiet mt8">
        If the program is not there yet, this installs it. It needs curl and ca-certificates:
      </p>
      <Command text={command.replace(/\| sh\b/, "| sudo sh")} />
    </>
  );
}

/** `agent up` takes a key as an argument only if it is for one machine and for an hour at most. */
function Up({ command, token, isApart, keepApart }: Omit<LinesProps, "system"> & { command: string }) {
  const lifeMs = Date.parse(token.expires_at) - Date.parse(token.created_at);
  const mayStandInLine = token.uses === 1 && lifeMs <= longestLifeOnCommandLineS * 1000;
  if (mayStandInLine && !isApart)
    return (
      <>
        <p class="quiet mt8">Then this joins. The key is in it, and works once:</p>
        <Command text={`${command} ${token.join_key}`} isMain={true} />
        <p class="help">
          <button type="button" class="plain as-link" onClick={keepApart}>
            Keep the key out of the shell's history
          </button>
        </p>
      </>
    );
  return (
    <>
      <p class="quiet mt8">Then this joins:</p>
      <Command text={command} />
      <p class="quiet mt8">
        It asks for this key{mayStandInLine ? "" : ", which may not stand on a command line"}:
      </p>
      <Command text={token.join_key} isText />
    </>
  );
}

export const Command = (line: LineProps) => (
  <div class="mt8">
    <Line {...line} />
  </div>
);
