// Ways to upload a photo: drop it anywhere, paste it, choose it or take it; all go to the page's uploader.
(() => {
  const send = (...files) => {
    const element = document.querySelector(".uploader");
    if (files.length && element) getElement(element).send(files.map((file) => ({ file, name: file.name })));
  };
  const photos = (files) => {
    const all = [...(files ?? [])], images = all.filter((file) => file.type.startsWith("image/"));
    return images.length ? images : all.slice(0, 1);
  };

  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) send(...photos(event.clipboardData.files));
  });
  let depth = 0;
  const dragging = (by) => {
    depth = by ? Math.max(0, depth + by) : 0;
    document.documentElement.classList.toggle("dragging", depth > 0);
  };
  document.addEventListener("dragenter", (event) => event.dataTransfer?.types.includes("Files") && dragging(1));
  document.addEventListener("dragleave", () => depth && dragging(-1));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    dragging(0);
    if (event.dataTransfer?.files.length) send(...photos(event.dataTransfer.files));
  });

  const choose = (more = {}) => {
    const input = Object.assign(document.createElement("input"), { type: "file", accept: "image/*", multiple: true, ...more });
    input.onchange = () => send(...input.files);
    input.click();
  };

  const camera = async () => {
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch {
      return choose({ capture: "environment" }); // the page may not use a camera; phones then offer their own
    }
    const dialog = Object.assign(document.createElement("dialog"), { className: "card camera" });
    const video = Object.assign(document.createElement("video"), { autoplay: true, playsInline: true, srcObject: stream });
    const make = (words, kind, act) =>
      Object.assign(document.createElement("button"), { textContent: words, className: "button " + kind, onclick: act });
    const take = make("Take the photo", "primary", () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: video.videoWidth, height: video.videoHeight });
      canvas.getContext("2d").drawImage(video, 0, 0);
      canvas.toBlob((blob) => send(new File([blob], "camera.jpg", { type: "image/jpeg" })), "image/jpeg", 0.92);
      dialog.close();
    });
    const line = Object.assign(document.createElement("div"), { className: "line" });
    line.append(take, make("Cancel", "", () => dialog.close()));
    dialog.setAttribute("aria-label", "Take a photo");
    dialog.append(video, line);
    dialog.addEventListener("close", () => {
      stream.getTracks().forEach((track) => track.stop());
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  };

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-choose]")) choose();
    if (event.target.closest(".path button") && innerWidth < 960) document.querySelector(".photo").scrollIntoView(); // its map
    if (event.target.closest("[data-camera]")) camera();
    const name = event.target.closest("[data-example]")?.dataset.example;
    if (name) fetch("/examples/" + name).then((answer) => answer.blob()).then((blob) => send(new File([blob], name, { type: blob.type })));
  });
  addEventListener("popstate", () => {
    const wanted = new URLSearchParams(location.search).get("photo") ?? "";
    const here = document.querySelector(".photo img")?.src ?? "";
    if (wanted ? !here.includes(wanted) : here) location.reload(); // not where only the fragment changes
  });
})();
