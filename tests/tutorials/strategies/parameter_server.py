import tensorflow as tf
from resnet import build_resnet, datasets, input_shape, num_classes

cluster_spec = tf.train.ClusterSpec(
    {
        "ps": ["ps0.example.com:2222", "ps1.example.com:2222"],
        "worker": [
            "worker0.example.com:2222",
            "worker1.example.com:2222",
            "worker2.example.com:2222",
            "worker3.example.com:2222",
        ],
    }
)
task_type = "worker"
task_index = 0

strategy = tf.distribute.experimental.ParameterServerStrategy()

train_dataset, val_dataset = datasets(batch_size=10)

with strategy.scope():
    model = build_resnet(input_shape, num_classes)
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])

model.fit(train_dataset, epochs=10, validation_data=val_dataset)
