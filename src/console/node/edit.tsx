// The dialog that changes a node: name, groups, the networks behind it, and its roles.

import { organizationsApi } from "../../api/organizations.ts";
import { nodesApi, nodeSettings } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { flagWords } from "../../protocol/settings.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { gatewayWords } from "../access/sides.ts";
import { get, type ApiError, request } from "../contact/api.ts";
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

/** The flags of `agent admin node update` for the same changes. */
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

/** `before`: the node from which `typed` was edited. `foreign`: the fields that others changed meanwhile. */
type State = { before: Node; typed: Typed; foreign: readonly Key[] };

export function Edit({ node, close }: { node: Node; close(): void }) {
  const slug = currentSlug.value ?? "";
  const path = apiPath(nodesApi.retrieve, { slug, id: node.id });
  const [{ before, typed, foreign }, setState] = useState<State>({
    before: node,
    typed: typedOf(node),
    foreign: [],
  });
  const type = (texts: Typed) => setState({ before, typed: texts, foreign });
  /** If others changed what the fields show, shows it, and returns true. */
  const takeOver = (now: Node): boolean => {
    const changedByOthers = changedKeys(before, now);
    if (changedByOthers.length === 0) return false;
    setState({
      before: now,
      typed: rebased(typed, before, now),
      foreign: [...new Set([...foreign, ...changedByOthers])],
    });
    return true;
  };
  const [groups, subnets] = [partsOf(typed.groups), networksIn(typed.subnets)];
  const changes = changesOf(before, typed);
  const sent = useRef({ groups, subnets });
  const newNetworks = subnets.filter((network) => !before.subnets.includes(network));
  const newExitGroups = partsOf(typed.exit_groups).filter((group) => !before.exit_groups?.includes(group));
  // After saving, if something is left to do on the machine.
  const [next, setNext] = useState<Way>();
  const save = request(nodesApi.update, { slug, id: node.id }, changes);
  const form = useAction(async () => {
    sent.current = { groups, subnets };
    // The user has to read what others changed before it is overwritten.
    if (takeOver(await get(path))) return;
    await save.send();
    // All that is shown of the organization: its paths begin with this one.
    await refresh(apiPath(organizationsApi.retrieve, { slug }));
    const name = changes.name ?? node.name;
    if (newNetworks.length + newExitGroups.length > 0)
      return setNext({ name, networks: newNetworks, groups: newExitGroups });
    close();
    tell(
      changes.name === undefined ? `${node.name} is saved.` : `${node.name} is called ${changes.name} now.`,
    );
  });
  useEffect(() => {
    // The saved change itself also arrives as an event.
    if (!form.isRunning) takeOver(node);
  }, [node]);
  if (next !== undefined) return <Next key="next" way={next} close={close} />;
  const isTyped = Object.keys(changes).length > 0;
  return (
    <FormDialog
      title={`Edit ${node.name}`}
      close={close}
      hasUnsaved={isTyped}
      action="Save"
      form={{ ...form, call: save.call }}
      disabled={!isTyped}
      shown={textFields}
      command={["node", "update", slug, node.name, ...flagsOf(before, changes)]}
    >
      <Fields typed={typed} type={type} error={form.error} sent={sent.current} />
      {foreign.length === 0 ? null : <Foreign now={before} fields={foreign} />}
      <Effects node={before} groups={groups} subnets={subnets} />
      {newNetworks.length === 0 ? null : <p class="quiet">{gatewayWords}</p>}
    </FormDialog>
  );
}

/** Changes by others while the dialog was open. */
function Foreign({ now, fields }: { now: Node; fields: readonly Key[] }) {
  const typedNow = typedOf(now);
  const words = [...textFields, ...roleFields].flatMap((key) => {
    const value = typedNow[key];
    const valueWords = typeof value === "boolean" ? (value ? "yes" : "no") : value || "none";
    // After the colon, the labels of roles explain them.
    return fields.includes(key) ? [`${nodeSettings[key].label.split(":")[0]}: ${valueWords}`] : [];
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

const textFields = ["name", "groups", "subnets", "exit_groups", "public_ip"] as const;
const roleFields = ["is_lighthouse", "is_relay", "is_name_server"] as const;

type FieldsProps = {
  typed: Typed;
  type(typed: Typed): void;
  error: ApiError | undefined;
  /** The lists as they were sent: errors name an item by its place in them. */
  sent: Pick<Node, "groups" | "subnets">;
};

function Fields({ typed, type, error, sent }: FieldsProps) {
  return (
    <>
      {textFields.map((key) => {
        const TextField = key === "groups" ? GroupsField : Text;
        return (
          <TextField
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
      {roleFields.map((key) => (
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
