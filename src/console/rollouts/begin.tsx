// The form that begins an update in rings: of versions, or of engine settings. It says what is chosen, and what happens in which
// order.

import { useRef, useState } from "preact/hooks";
import { apiPath, type GivenOf } from "../../api/endpoint.ts";
import { organizationsApi } from "../../api/organizations.ts";
import { rolloutsApi, usualWatchS } from "../../api/rollouts.ts";
import { isObject } from "../../base/is-object.ts";
import { hoursFrom } from "../../protocol/updates/hours.ts";
import { type ApiError, request } from "../contact/api.ts";
import { me, currentSlug } from "../contact/me.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { go, pathOf } from "../frame/router.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useGroupNames } from "../pages/groups-field.tsx";
import { Segments } from "../ui/button.tsx";
import { FormDialog } from "../ui/dialog.tsx";
import { Field, valueOf } from "../ui/field.tsx";
import { Listed, Text, useAction } from "../ui/form.tsx";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { plural } from "../words/numbers.ts";
import { mtuOf, olderThan, planOf, runningWords, withMtu } from "./plan.ts";

const sample = '{"tun":{"mtu":1280}}';
const usualMinutes = `${usualWatchS / 60}`;
/** What a form begins with. `settings` undefined: not typed, so the field shows the organization's. */
const empty = { agent: "", engine: "", settings: undefined as string | undefined, groups: "", hours: "" };
const kinds = [
  ["versions", "Versions"],
  ["settings", "Engine settings"],
] as const;

/** The object that the text is as JSON; undefined if it is no JSON object. */
function objectIn(text: string): Record<string, unknown> | undefined {
  try {
    const found: unknown = JSON.parse(text);
    return isObject(found) ? found : undefined;
  } catch {
    return undefined;
  }
}

const textOf = (settings: object = {}) => JSON.stringify(settings, null, 2);

type Typed = typeof empty;
/** What the fields of the form share. `put`: gives what stores the text of a field. `fields`: why the API refused them. */
type Inputs = {
  typed: Typed;
  put(field: keyof Typed): (text: string) => void;
  fields: ApiError["fields"] | undefined;
};

export function Begin({ path, close }: { path: string; close(): void }) {
  const slug = currentSlug.value ?? "";
  /** The settings that are in force. */
  const present = useResource(apiPath(organizationsApi.retrieve, { slug })).data?.config_overrides;
  const { data: nodes = [] } = useNodes();
  const [kind, setKind] = useState<(typeof kinds)[number][0]>("versions");
  const [typed, setTyped] = useState(empty);
  const [watch, setWatch] = useState(usualMinutes);
  const isSettings = kind === "settings";
  const hours = partsOf(typed.hours, " ");
  const wrongHours = hours.find((each) => hoursFrom(each) === undefined);
  const text = typed.settings ?? textOf(present);
  const settings = objectIn(text);
  const groups = isSettings ? [] : partsOf(typed.groups);
  const versions = (
    [
      ["agent", typed.agent.trim()],
      ["engine", typed.engine.trim()],
    ] as const
  ).filter(([, version]) => !isSettings && version !== "");
  const body = {
    ...(isSettings ? { settings: settings ?? {} } : Object.fromEntries(versions)),
    groups,
    hours: hours.flatMap((each) => hoursFrom(each) ?? []) as GivenOf<typeof rolloutsApi.create>["hours"],
    watch_s: Number(watch) * 60,
  };
  const sent = useRef("");
  const sends = request(rolloutsApi.create, { slug }, body);
  const form = useAction(async () => {
    sent.current = JSON.stringify(body);
    const { id } = await sends.send();
    await refresh(path);
    close();
    go(pathOf(slug, "rollouts", id));
  });
  // A refusal is about what was sent, and not about what is typed or chosen since.
  const error = sent.current === JSON.stringify(body) ? form.error : undefined;
  const chosenNodes = nodes.filter(
    ({ state, phone, groups: own }) =>
      state === "active" &&
      phone === null &&
      (groups.length === 0 || groups.some((each) => own.includes(each))),
  );
  const isUnchanged = settings === undefined || JSON.stringify(settings) === JSON.stringify(present);
  const isNothing = isSettings ? isUnchanged : versions.length === 0;
  const chosen = isSettings
    ? `Settings: ${Object.keys(settings ?? {}).join(", ") || "as usual"}`
    : versions.map((each) => each.join(" ")).join(", ");
  const count = isSettings
    ? chosenNodes.length
    : olderThan(chosenNodes, { agent: "", engine: "", ...Object.fromEntries(versions) }).length;
  const inputs: Inputs = {
    typed,
    put: (field) => (next) => setTyped({ ...typed, [field]: next }),
    fields: error?.fields,
  };
  return (
    <FormDialog
      title="Update nodes in rings"
      action="Begin"
      hasUnsaved={Object.values(typed).some(Boolean)}
      form={{ ...form, error, call: sends.call }}
      close={close}
      shown={Object.keys(empty)}
      disabled={isNothing || wrongHours !== undefined}
      command={[
        "rollout",
        "create",
        slug,
        ...(isSettings ? ["--settings", "FILE"] : []),
        ...versions.flatMap(([what, version]) => [`--${what}`, version]),
        ...groups.flatMap((group) => ["--group", group]),
        ...hours.flatMap((each) => ["--hours", each]),
        ...(watch === usualMinutes ? [] : ["--watch", `${watch}m`]),
      ]}
    >
      <div class="check">
        <Segments label="What" value={kind} choices={kinds} set={(next) => setKind(next)} />
      </div>
      {isSettings ? (
        <SettingsField {...inputs} text={text} settings={settings} />
      ) : (
        <Versions {...inputs} nodes={chosenNodes} />
      )}
      <Times {...inputs} wrong={wrongHours} watch={watch} setWatch={setWatch} />
      {error === undefined ? (
        <Outcome
          title={
            isNothing
              ? ""
              : `${chosen}, up to ${plural(count, "node")}${groups.length === 0 ? "" : ` of ${groups.join(", ")}`}`
          }
          plan={planOf({ count, watchMinutes: Number(watch), hours, isSettings })}
          isSettings={isSettings}
        />
      ) : null}
    </FormDialog>
  );
}

/** `title`: empty if nothing is chosen. */
type OutcomeProps = { title: string; plan: readonly string[]; isSettings: boolean };

const Outcome = ({ title, plan, isSettings }: OutcomeProps) => (
  <div class="notice" role="status">
    {title === "" ? (
      <p>Nothing is chosen yet.</p>
    ) : (
      <>
        <h3>
          <bdi>{title}</bdi>
        </h3>
        <ol>
          {plan.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ol>
        {isSettings ? null : <p>Nodes whose root does not permit updates are left out.</p>}
      </>
    )}
  </div>
);

/** `settings`: the text as an object; undefined if it is none. */
type SettingsProps = Inputs & { text: string; settings: Record<string, unknown> | undefined };

const SettingsField = ({ put, fields, text, settings }: SettingsProps) => (
  <>
    <Text
      label="MTU of the tunnels"
      help="Bytes. Empty: as usual."
      value={mtuOf(settings)}
      set={(mtu) => put("settings")(textOf(withMtu(settings, mtu)))}
      control={{ type: "number", min: 500, max: 9000, disabled: settings === undefined }}
    />
    <Field
      label="Settings of all engines"
      help={`One JSON object for all nodes, not for groups, such as ${sample}. What is not in it is as usual.`}
      errors={settings === undefined ? ["This is no JSON object."] : sentencesOf(fields, "settings")}
    >
      <textarea
        class="mono"
        rows={5}
        spellcheck={false}
        placeholder={sample}
        value={text}
        onInput={(event: Event) => put("settings")(valueOf(event))}
      />
    </Field>
  </>
);

function Versions({ typed, put, fields, nodes }: Inputs & { nodes: readonly ListedNode[] }) {
  const known = useGroupNames() ?? [];
  const version = (what: "agent" | "engine", key: "agent_version" | "overlay_version", help: string) => {
    const running = runningWords(nodes, key);
    return (
      <Text
        label={`Version of the ${what}`}
        help={`${running === "" ? "" : `Now ${running}. `}${help} Empty: as it is.`}
        errors={fields?.[what]}
        value={typed[what]}
        set={put(what)}
        control={{ maxlength: 20, autocomplete: "off" }}
      />
    );
  };
  return (
    <>
      {version("agent", "agent_version", `A signed release, such as ${me.value?.server_version}.`)}
      {version("engine", "overlay_version", "Never a lower one.")}
      <Listed
        label="Groups"
        help="Separated by commas. Empty: all nodes."
        errors={sentencesOf(fields, "groups", partsOf(typed.groups))}
        value={typed.groups}
        set={put("groups")}
        offered={known}
      />
    </>
  );
}

/** `wrong`: a part of the typed hours that is none; undefined if all are. */
type TimesProps = Inputs & { wrong: string | undefined; watch: string; setWatch(minutes: string): void };

const Times = ({ typed, put, fields, wrong, watch, setWatch }: TimesProps) => (
  <>
    <Text
      label="Hours"
      help="In each node's own time, separated by blanks: 22-5, or sat,sun:0-24. Empty: always."
      errors={
        wrong === undefined
          ? sentencesOf(fields, "hours", partsOf(typed.hours, " "))
          : [`"${wrong}" is not hours such as 22-5 or sat,sun:0-24.`]
      }
      value={typed.hours}
      set={put("hours")}
      control={{ maxlength: 200, autocomplete: "off" }}
    />
    <Text
      label="Minutes that a ring is watched"
      errors={fields?.["watch_s"]}
      value={watch}
      set={setWatch}
      control={{ type: "number", min: 1, max: 1440, required: true }}
    />
  </>
);
