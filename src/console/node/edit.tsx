// The dialog that changes a node: name, groups, the networks behind it, and its roles.

import { organizationsApi } from "../../api/organizations.ts";
import { nodesApi, nodeSettings } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { flagWords } from "../../protocol/settings.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { gatewayWords } from "../access/networks.ts";
import { get, type ApiError, call } from "../contact/api.ts";
import { networksIn, partsOf, sentencesOf } from "../words/field-parts.ts";
import { changesOf, changedKeys, rebased, typedOf, type Changes, type Key, type Typed } from "./change.ts";
import { currentSlug } from "../contact/me.ts";
import { refresh } from "../contact/resource.ts";
import { Check, Text, useAction } from "../ui/form.tsx";
import { FormDialog } from "../ui/dialog.tsx";
import { tell } from "../ui/toast.tsx";
import { GroupsField } from "../pages/groups-field.tsx";
import { Effects } from "./effects.tsx";
import { Next, type Way } from "./next-steps.tsx";

function flagsOf(node: Node, { groups, subnets, exit_groups: exits, ...changes }: Changes): string[] {
  const list = (flag: string, before: readonly string[], after = before) => [
    ...after.filter((each) => !before.includes(each)).flatMap((each) => [`--add-${flag}`, each]),
    ...before.filter((each) => !after.includes(each)).flatMap((each) => [`--remove-${flag}`, each]),
  ];
  return [
    ...list("group", node.groups, groups),
    ...list("subnet", node.subnets, subnets),
    ...list("exit-group", node.exit_groups ?? [], exits),
    ...flagWords(nodeSettings, changes),
  ];
}

/** `before`: the node as the fields know it. `foreign`: what others changed meanwhile. */
type State = { before: Node; typed: Typed; foreign: readonly Key[] };

export function Edit({ node, close }: { node: Node; close(): void }) {
  const slug = currentSlug.value ?? "";
  const path = apiPath(nodesApi.retrieve, { slug, id: node.id });
  const [{ before, typed, foreign }, setState] = useState<State>({
    before: node,
    typed: typedOf(node),
    foreign: [],
  });
  const type = (next: Typed) => setState({ before, typed: next, foreign });
  /** Whether others changed what the fields show. */
  const follow = (now: Node) => {
    const found = changedKeys(before, now);
    if (found.length === 0) return false;
    setState({
      before: now,
      typed: rebased(typed, before, now),
      foreign: [...new Set([...foreign, ...found])],
    });
    return true;
  };
  const [groups, subnets] = [partsOf(typed.groups), networksIn(typed.subnets)];
  const changes = changesOf(before, typed);
  const sent = useRef({ groups, subnets });
  const added = subnets.filter((network) => !before.subnets.includes(network));
  const opened = partsOf(typed.exit_groups).filter((group) => !before.exit_groups?.includes(group));
  const [routed, setRouted] = useState<Way>();
  const form = useAction(async () => {
    sent.current = { groups, subnets };
    if (follow(await get(path))) return;
    await call(nodesApi.update, { slug, id: node.id }, changes);
    await refresh(apiPath(organizationsApi.retrieve, { slug }));
    const name = changes.name ?? node.name;
    if (added.length + opened.length > 0) return setRouted({ name, networks: added, groups: opened });
    close();
    tell(
      changes.name === undefined ? `${node.name} is saved.` : `${node.name} is called ${changes.name} now.`,
    );
  });
  useEffect(() => {
    // The saved change itself also arrives as an event.
    if (!form.isRunning) follow(node);
  }, [node]);
  if (routed !== undefined) return <Next key="next" way={routed} close={close} />;
  const isTyped = Object.keys(changes).length > 0;
  return (
    <FormDialog
      title={`Edit ${node.name}`}
      close={close}
      hasUnsaved={isTyped}
      action="Save"
      form={form}
      disabled={!isTyped}
      shown={texts}
      terminal={{
        command: ["node", "update", slug, node.name, ...flagsOf(before, changes)],
        call: ["PATCH", path, changes],
      }}
    >
      <Fields typed={typed} type={type} error={form.error} sent={sent.current} />
      {foreign.length === 0 ? null : <Foreign now={before} fields={foreign} />}
      <Effects node={before} groups={groups} subnets={subnets} />
      {added.length === 0 ? null : <p class="quiet">{gatewayWords}</p>}
    </FormDialog>
  );
}

/** Changes by others while the dialog was open. */
function Foreign({ now, fields }: { now: Node; fields: readonly Key[] }) {
  const shown = typedOf(now);
  const words = [...texts, ...roles].flatMap((key) => {
    const value = shown[key];
    const is = typeof value === "boolean" ? (value ? "yes" : "no") : value || "none";
    return fields.includes(key) ? [`${nodeSettings[key].label.split(":")[0]}: ${is}`] : [];
  });
  return (
    <div class="notice" role="alert">
      <p>Another administrator has just changed this node. It has now:</p>
      {words.map((each) => (
        <p key={each}>
          <bdi>{each}</bdi>
        </p>
      ))}
      <p>The fields have that and your changes: read them again before you save.</p>
    </div>
  );
}

const texts = ["name", "groups", "subnets", "exit_groups", "public_ip"] as const;
const roles = ["is_lighthouse", "is_relay", "is_name_server"] as const;

type FieldsProps = {
  typed: Typed;
  type(typed: Typed): void;
  error: ApiError | undefined;
  /** The lists as they were sent. */
  sent: Pick<Node, "groups" | "subnets">;
};

function Fields({ typed, type, error, sent }: FieldsProps) {
  return (
    <>
      {texts.map((key) => {
        const Line = key === "groups" ? GroupsField : Text;
        return (
          <Line
            key={key}
            label={nodeSettings[key].label}
            help={Object(nodeSettings[key]).more}
            errors={sentencesOf(error?.fields, key, key === "groups" || key === "subnets" ? sent[key] : [])}
            value={typed[key]}
            set={(text: string) => type({ ...typed, [key]: text })}
            control={{ required: key === "name" }}
          />
        );
      })}
      {roles.map((key) => (
        <p key={key}>
          <Check
            label={nodeSettings[key].label}
            checked={typed[key]}
            set={(isOn: boolean) => type({ ...typed, [key]: isOn })}
          />
        </p>
      ))}
    </>
  );
}
