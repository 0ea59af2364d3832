// A drop zone for photos and folders: files are sent one by one, a few at a time, and refused files are listed.
const IMAGE = /\.(jpe?g|png|webp|bmp|gif|tiff?|ppm|pgm|avif)$/i, AT_ONCE = 3;

async function files(entry, path = "") {
  if (entry.isFile) {
    const file = await new Promise((found, failed) => entry.file(found, failed));
    return [{ file, name: path + file.name }];
  }
  const reader = entry.createReader(), found = [];
  for (;;) {
    const some = await new Promise((read, failed) => reader.readEntries(read, failed));
    if (!some.length) return found;
    for (const one of some) found.push(...(await files(one, path + entry.name + "/")));
  }
}

export default {
  template: `
    <div :class="{ drop: words, over }" @dragover.prevent="over = true" @dragleave="over = false" @drop.prevent="dropped">
      <p v-if="words">{{ words }}</p>
      <div v-if="words" class="line">
        <button type="button" class="button" :disabled="busy" @click="$refs.files.click()">Choose photos</button>
        <button v-if="folders" type="button" class="button" :disabled="busy" @click="$refs.folder.click()">Choose a folder</button>
      </div>
      <input ref="files" type="file" multiple accept="image/*" hidden aria-label="Photos" @change="chosen">
      <input ref="folder" type="file" webkitdirectory hidden aria-label="A folder of photos" @change="chosen">
      <progress v-if="words && busy" :max="total" :value="done" aria-label="Photos sent"></progress>
      <p v-if="words || busy" role="status" class="small" :class="words ? 'soft' : 'working'">{{ status }}</p>
    </div>`,
  props: { url: String, words: String, folders: Boolean },
  emits: ["done"],
  data: () => ({ over: false, total: 0, done: 0, busy: false, status: "" }),
  methods: {
    async dropped(event) {
      this.over = false;
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      this.send((await Promise.all(entries.map((entry) => files(entry)))).flat());
    },
    chosen(event) {
      this.send([...event.target.files].map((file) => ({ file, name: file.webkitRelativePath || file.name })));
      event.target.value = "";
    },
    async send(all) {
      const photos = all.filter(({ file, name }) => file.type.startsWith("image/") || IMAGE.test(name));
      while (this.busy) await new Promise((wake) => setTimeout(wake, 50)); // photos that were dropped earlier come first
      if (!photos.length) {
        this.status = "There were no photos among these files.";
        return this.$emit("done", [this.status]);
      }
      [this.total, this.done, this.busy, this.status] = [photos.length, 0, true, "Sending …"];
      const problems = [], waiting = [...photos];
      const one = async () => {
        for (let next = waiting.shift(); next; next = waiting.shift()) {
          const problem = await this.post(next);
          if (problem) problems.push(next.name + ": " + problem);
          this.status = `${++this.done} of ${this.total} photos`;
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, one));
      this.busy = false;
      this.status = `${this.total - problems.length} of ${this.total} photos added.` + (problems.length ? " Problems: " + problems.slice(0, 3).join("; ") : "");
      this.$emit("done", problems.slice(0, 3));
    },
    async post({ file, name }, tries = 20) {
      try {
        const answer = await fetch(window.path_prefix + this.url, { method: "POST", body: file, headers: { "X-Name": encodeURIComponent(name) } });
        if ([429, 503].includes(answer.status) && tries) {
          await new Promise((wake) => setTimeout(wake, 1000));
          return this.post({ file, name }, tries - 1);
        }
        return answer.ok ? "" : (await answer.json()).error;
      } catch (error) { return "the file could not be sent"; }
    },
  },
};
