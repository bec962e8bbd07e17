// Pages by which machines come: one file of all takes fewer bytes than one for each.

export { AddNode } from "./add.tsx";
export { Phones } from "./phones.tsx";
export { AnswerDialog } from "./answer-dialogs.tsx";
export { Waiting } from "./waiting.tsx";
export { QrPicture } from "../ui/qr-picture.tsx";
