import json
import os

os.environ["TF_CONFIG"] = json.dumps(
    {
        "cluster": {"worker": ["192.168.1.100", "192.168.1.101"]},
        "task": {"type": "worker", "index": int(os.environ["WORKER"])},
    }
)

import tensorflow as tf
from resnet import build_resnet, datasets, input_shape, num_classes

strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()

train_dataset, val_dataset = datasets(batch_size=10)

with strategy.scope():
    model = build_resnet(input_shape, num_classes)
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])

model.fit(train_dataset, epochs=10, validation_data=val_dataset)
